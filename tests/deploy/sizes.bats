#!/usr/bin/env bats
# What runs with privilege stays as small as it is: its size and its system calls are written down.

ROOT=$BATS_TEST_DIRNAME/../..
BUILD=${PINFOLD_BUILD:-$ROOT/build}

# A record of its own: what tests/privileged.json says, changed by an expression on `r`.
record() {
    python3 - "$ROOT/tests/privileged.json" "$BATS_TEST_TMPDIR/record" "$1" <<'END'
import json, sys
r = json.load(open(sys.argv[1]))
exec(sys.argv[3])
json.dump(r, open(sys.argv[2], "w"))
END
    export PINFOLD_PRIVILEGED=$BATS_TEST_TMPDIR/record
}

@test "the privileged programs have grown neither in size nor in system calls" {
    run "$ROOT/tests/sizes" --check "$BUILD"
    echo "$output"
    [ "$status" -eq 0 ]
}

@test "more lines than are written down are noticed" {
    record 'r["pinfold-runner"]["lines"] = 1000'
    run "$ROOT/tests/sizes" --check "$BUILD"
    [ "$status" -eq 1 ]
    [[ $output == *"pinfold-runner has "*"allows 1000"* ]]
}

@test "a system call that is not written down is noticed, by function and by number" {
    record 'r["pinfold-init"]["calls"].remove("setns"); r["pinfold-runner"]["calls"].remove("pivot_root")'
    run "$ROOT/tests/sizes" --check "$BUILD"
    [ "$status" -eq 1 ]
    [[ $output == *"pinfold-init makes the system call setns"* ]]
    [[ $output == *"pinfold-runner makes the system call pivot_root"* ]]
}

@test "a program that is not written down is noticed" {
    record 'del r["pinfold-init"]'
    run "$ROOT/tests/sizes" --check "$BUILD"
    [ "$status" -eq 1 ]
}

@test "no privileged program starts a shell or loads code" {
    run bash -c "nm -D --undefined-only '$BUILD/pinfold-runner'; nm '$BUILD'/init/obj/runner/*/*.o"
    [[ $output == *" U "* ]]
    ! grep -E ' U (system|popen|posix_spawnp?|dlopen|execvpe?|execlp)(@|$)' <<<"$output"
}

@test "every test that SECURITY.md names is there" {
    run python3 "$ROOT/tests/promises" "$BUILD"
    echo "$output"
    [ "$status" -eq 0 ]
}
