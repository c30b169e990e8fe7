#!/usr/bin/env bats
# pinfold receipt and replay, pinfold-server audit and receipt-key, as people use them.

load lib.bash

setup_file() {
    [[ $EUID -eq 0 ]] || skip "only root can start the runner"
    chmod 755 "$BATS_FILE_TMPDIR"
    start_pair "$BATS_FILE_TMPDIR"
}

teardown_file() {
    if [[ -e $BATS_FILE_TMPDIR/server.pid ]]; then
        stop_pair "$BATS_FILE_TMPDIR"
    fi
}

setup() {
    PINFOLD=$(program pinfold)
    SERVER=$(program pinfold-server)
    STATE=$BATS_FILE_TMPDIR/state
    cd "$BATS_TEST_TMPDIR" || return 1
}

@test "a receipt proves a result without the server, and another result not" {
    apart "$SERVER" receipt-key --state "$STATE"
    [[ $status -eq 0 && $out =~ ^[0-9a-f]{64}$ ]]
    echo "$out" >server.pub
    "$PINFOLD" run --json -c 'echo PASS; exit 1' >result.json || true
    unset PINFOLD_URL PINFOLD_TOKEN
    apart "$PINFOLD" receipt verify result.json --key server.pub
    [[ $status -eq 0 && $out == *"The signature is valid"* && $out == *"exit code 1"* ]]
    sed 's/"exit_code":1/"exit_code":0/' result.json >other.json
    apart "$PINFOLD" receipt verify other.json --key server.pub
    [[ $status -eq 1 && $out == *"NOT proven"* && $out == *exit_code* ]]
    apart "$PINFOLD" receipt verify result.json --key "$(printf '0%.0s' {1..64})"
    [[ $status -eq 1 && $out == *"another key"* ]]
}

@test "what a receipt shows of a command is unmistakable and whole" {
    key=$("$SERVER" receipt-key --state "$STATE")
    "$PINFOLD" run --json -- true '; make test' >result.json
    apart "$PINFOLD" receipt verify result.json --key "$key"
    [[ $status -eq 0 && $out == *': true "; make test"'* ]]
    "$PINFOLD" run --json -- true $'x\n  step 2, test: make' >result.json
    apart "$PINFOLD" receipt verify result.json --key "$key"
    [[ $status -eq 0 && $out == *'true "x\n  step 2, test: make"'* ]]
    "$PINFOLD" run --json -c "make test$(printf ' %.0s' {1..1500})|| true" >result.json
    apart "$PINFOLD" receipt verify result.json --key "$key"
    [[ $status -eq 0 && $out == *"make test  "*"|| true"* ]]
}

@test "what is wrong with the call is said, with its exit status" {
    apart "$PINFOLD" receipt verify nothing.json --key "$(printf 'a%.0s' {1..64})"
    [[ $status -eq 125 && $err == *nothing.json* ]]
    apart "$PINFOLD" receipt verify nothing.json
    [[ $status -eq 2 && $err == *"--key"* ]]
    apart "$PINFOLD" receipt verify nothing.json --key xyz
    [[ $status -eq 2 ]]
    echo '{"id": 1}' >plain.json
    apart "$PINFOLD" receipt verify plain.json --key "$(printf 'a%.0s' {1..64})"
    [[ $status -eq 1 && $out == *"no receipt"* ]]
    echo '{' >broken.json
    apart "$PINFOLD" receipt verify broken.json --key "$(printf 'a%.0s' {1..64})"
    [[ $status -eq 125 && $err == *"not JSON"* ]]
    apart "$SERVER" audit tidy --state "$STATE"
    [[ $status -eq 2 ]]
}

@test "replay prints a table and says whether everything is equal" {
    id=$("$PINFOLD" run --json -c 'echo same' | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
    apart "$PINFOLD" replay "$id"
    [[ $status -eq 0 && $out == *"step 1 stdout"*equal* && $out == *"everything is equal"* ]]
    id=$("$PINFOLD" run --json -c 'cat /proc/sys/kernel/random/uuid' | /usr/bin/python3 -c 'import json, sys; print(json.load(sys.stdin)["id"])')
    apart "$PINFOLD" replay "$id"
    [[ $status -eq 1 && $out == *DIFFERS* ]]
    apart "$PINFOLD" receipt get "$id"
    [[ $status -eq 0 && $out == *'"signature"'* ]]
}

@test "the audit log is verified and shown, commands of the administrator included" {
    "$SERVER" user add carol --state "$STATE"
    apart "$SERVER" audit verify --state "$STATE"
    [[ $status -eq 0 && $out == *"is sound"* ]]
    apart "$SERVER" audit show --type command --state "$STATE"
    [[ $status -eq 0 && $out == *"user add"* && $out == *carol* ]]
    apart "$SERVER" audit show --since 1h --type accepted --json --state "$STATE"
    [[ $status -eq 0 && $out == *'"what":"run"'* ]]
    apart "$SERVER" audit show --since yesterday --state "$STATE"
    [[ $status -eq 1 && $err == *"--since"* ]]
    apart "$SERVER" audit head --state "$STATE"
    [[ $status -eq 0 && $out =~ ^[0-9a-f]{64}\ log\ [0-9]+ ]]
    apart "$SERVER" audit prune --state "$STATE"
    [[ $status -eq 1 && $err == *"--older-than"* ]]
}
