#!/usr/bin/env bats
# pinfold permission: verdicts, files of rules, trust, and what is always allowed. No server is needed.

load lib.bash

setup() {
    PINFOLD=$(program pinfold)
    export HOME=$BATS_TEST_TMPDIR/home XDG_CONFIG_HOME= XDG_STATE_HOME=
    CONFIG=$HOME/.config/pinfold
    mkdir -p "$BATS_TEST_TMPDIR/ws" "$CONFIG"
    cd "$BATS_TEST_TMPDIR/ws" || return 1
    P0=$ROOT/tests/permission/P0.rules
}

# The value of a field of the JSON on stdin.
field() {
    /usr/bin/python3 -c 'import json, sys; v = json.load(sys.stdin)
for k in sys.argv[1].split("."): v = v[int(k)] if isinstance(v, list) else v[k]
print(json.dumps(v) if not isinstance(v, str) else v)' "$1"
}

@test "test prints verdict, parts and rule as JSON" {
    "$PINFOLD" permission test --rules "$P0" --json 'git status && rm -rf /x' >out
    is "$(field verdict <out)" deny
    is "$(field rule <out)" "deny exec rm -rf **"
    is "$(field at <out)" "$P0:5"
    is "$(field parts.0.verdict <out)" allow
    is "$(field parts.1.command <out)" "rm -rf /x"
    is "$(field argv <out)" null
    "$PINFOLD" permission test --rules "$P0" --json 'git  "status"' >out
    is "$(field argv <out)" '["git", "status"]'
}

@test "test says the same to people, and no control character" {
    apart "$PINFOLD" permission test --rules "$P0" $'ls \e[8m; curl x'
    is "$status" 0
    [[ $out == deny:* && $out == *"deny exec curl **"* && $out != *$'\e'* ]]
}

@test "no command is an error, never an allow" {
    for text in '' '   '; do
        run "$PINFOLD" permission test --rules "$P0" --json "$text"
        is "$status" 2
        is "$(field verdict <<<"$output")" error
    done
    run "$PINFOLD" permission check --rules "$P0" '# only a comment'
    is "$status" 3
}

@test "check: the exit status is the verdict, and without a terminal ask is deny" {
    run "$PINFOLD" permission check --rules "$P0" 'git status' </dev/null
    is "$status" 0
    run "$PINFOLD" permission check --rules "$P0" 'python3 x' </dev/null
    is "$status" 3
    run "$PINFOLD" permission check --rules "$P0" 'curl x' </dev/null
    is "$status" 3
}

@test "a file of rules with an error refuses everything, with its line" {
    printf 'allow exec ls **\n\npermit exec rm **\n' >bad.rules
    apart "$PINFOLD" permission test --rules bad.rules --json ls
    is "$status" 2
    is "$out" ""
    [[ $err == *"bad.rules:3: a rule begins with deny, ask or allow, not with permit"* ]]
    printf 'deny exec git push **\n? git push origin\n! git push\n' >bad.rules
    apart "$PINFOLD" permission test --rules bad.rules ls
    is "$status" 2
    [[ $err == *'bad.rules:3: the example "git push" matches, and must not'* ]]
    apart "$PINFOLD" permission test --rules missing.rules ls
    is "$status" 2
    [[ $err == *"missing.rules: there is no such file"* ]]
}

@test "rules that others can write are refused" {
    echo 'allow exec ls **' >"$CONFIG/permissions.rules"
    chmod 666 "$CONFIG/permissions.rules"
    apart "$PINFOLD" permission test ls
    is "$status" 2
    [[ $err == *"others may write this file"* ]]
}

@test "the workspace's rules may tighten, and loosen only while their content is trusted" {
    echo 'allow exec ls **' >"$CONFIG/permissions.rules"
    mkdir .pinfold
    printf 'allow exec make **\ndeny exec ls -R **\n' >.pinfold/permissions.rules
    is "$("$PINFOLD" permission test --json 'ls -R' | field verdict)" deny
    is "$("$PINFOLD" permission test --json 'make all' | field verdict)" ask
    run "$PINFOLD" permission trust </dev/null
    is "$status" 3
    is "$("$PINFOLD" permission test --json 'make all' | field verdict)" ask
    "$PINFOLD" permission trust --yes >said
    [[ $(<said) == *"allow exec make **"*trusted ]]
    is "$("$PINFOLD" permission test --json 'make all' | field verdict)" allow
    is "$("$PINFOLD" permission test --json 'ls -R' | field verdict)" deny
    echo 'allow exec rm **' >>.pinfold/permissions.rules
    is "$("$PINFOLD" permission test --json 'make all' | field verdict)" ask
    "$PINFOLD" permission trust --yes >/dev/null
    "$PINFOLD" permission trust --revoke
    is "$("$PINFOLD" permission test --json 'rm x' | field verdict)" ask
}

@test "no allow of the workspace or of always lifts an ask or a deny" {
    printf 'ask exec git push **\ndeny exec rm **\n' >"$CONFIG/permissions.rules"
    mkdir .pinfold
    printf 'allow exec git push **\nallow exec rm **\n' >.pinfold/permissions.rules
    "$PINFOLD" permission trust --yes >/dev/null
    is "$("$PINFOLD" permission test --json 'git push' | field verdict)" ask
    is "$("$PINFOLD" permission test --json 'rm x' | field verdict)" deny
    run "$PINFOLD" permission allow --yes 'rm x'
    is "$status" 3
}

@test "always allow stores two or more literal words, outside of the workspace" {
    "$PINFOLD" permission allow --yes 'git diff --stat' >said
    is "$(<said)" "allow exec git diff **"
    "$PINFOLD" permission allow --yes 'git diff --stat' >said
    is "$(<said)" "it is allowed already"
    is "$("$PINFOLD" permission test --json 'git diff HEAD' | field verdict)" allow
    is "$(cat "$CONFIG"/grants/*.rules)" "allow exec git diff **"
    is "$(stat -c %a "$CONFIG"/grants/*.rules)" 600
    is "$(find . -type f ! -name said | wc -l)" 0
    mkdir "$BATS_TEST_TMPDIR/other"
    is "$("$PINFOLD" permission test --workspace "$BATS_TEST_TMPDIR/other" --json 'git diff' | field verdict)" ask
}

@test "always allow refuses shells, interpreters, wrappers and what is opaque" {
    for command in 'bash -c ls' 'python3 x.py' 'env ls -l' 'sudo ls -l' 'ls' 'xargs echo x' 'make all' \
        'cat $x' 'echo "unclosed' './run x' 'eval ls x' 'find . -delete' 'git -c a=b status'; do
        run "$PINFOLD" permission allow --yes "$command"
        is "$status" 3
    done
    [ ! -e "$CONFIG/grants" ]
}

@test "secrets are denied until a rule allows them, Pinfold's own files whatever a rule says" {
    printf 'allow exec cat **\nallow write **\n' >r
    is "$("$PINFOLD" permission test --rules r --json 'cat .env' | field verdict)" deny
    printf 'allow exec cat **\nallow read .env\nallow write **\nallow read ~/**\n' >r
    is "$("$PINFOLD" permission test --rules r --json 'cat .env' | field verdict)" allow
    is "$("$PINFOLD" permission test --rules r --json 'cat x > .pinfold/permissions.rules' | field verdict)" deny
    is "$("$PINFOLD" permission test --rules r --kind write --json "$CONFIG/trusted" | field verdict)" deny
}

@test "a link is judged by its name and by where it leads" {
    mkdir .git src
    ln -s .git/hooks hooks
    ln -s /etc out
    ln -s ../.git src/up
    printf 'allow exec echo **\nallow write ** \ndeny write .git/**\n' >r
    is "$("$PINFOLD" permission test --rules r --json 'echo x > hooks/a' | field verdict)" deny
    is "$("$PINFOLD" permission test --rules r --json 'echo x > src/up/config' | field verdict)" deny
    is "$("$PINFOLD" permission test --rules r --json 'echo x > out/passwd' | field verdict)" ask
    is "$("$PINFOLD" permission test --rules r --json 'echo x > src/a' | field verdict)" allow
    ln -s loop loop
    is "$("$PINFOLD" permission test --rules r --json 'echo x > loop/a' | field verdict)" ask
}

@test "net, model and tool" {
    printf 'allow net *.example.org:443 a.b\nallow model local\nask tool write\nallow tool *\n' >r
    is "$("$PINFOLD" permission test --rules r --kind net --json x.example.org:443 | field verdict)" allow
    is "$("$PINFOLD" permission test --rules r --kind net --json x.example.org:80 | field verdict)" ask
    is "$("$PINFOLD" permission test --rules r --kind net --json a.b:1 | field verdict)" allow
    is "$("$PINFOLD" permission test --rules r --kind model --json local | field verdict)" allow
    is "$("$PINFOLD" permission test --rules r --kind model --json openai | field verdict)" ask
    is "$("$PINFOLD" permission test --rules r --kind tool --json write | field verdict)" ask
    is "$("$PINFOLD" permission test --rules r --kind tool --json read | field verdict)" allow
}

@test "list shows the files, the rules and one hash over all of them" {
    echo 'allow exec ls **' >"$CONFIG/permissions.rules"
    run "$PINFOLD" permission list
    is "$status" 0
    [[ $output == *"$CONFIG/permissions.rules  1 rules"* && $output == *"allow exec ls **"* ]]
    first=$(grep ^policy <<<"$output")
    echo '# changed' >>"$CONFIG/permissions.rules"
    [ "$first" != "$("$PINFOLD" permission list | grep ^policy)" ]
}

@test "what the parser understands, bash understands in the same way" {
    "$ROOT/tests/permission/differential.py" "$PINFOLD" 60 >said || {
        cat said
        return 1
    }
}
