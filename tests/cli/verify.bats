#!/usr/bin/env bats
# pinfold verify: verdicts, exit codes, and what is printed.

load lib.bash

setup() {
    PINFOLD=$(program pinfold)
    mkdir "$BATS_TEST_TMPDIR/cwd"
    cd "$BATS_TEST_TMPDIR/cwd" || return 1
    printf 'id,amount\n1,10.5\n2,x\n' >t.csv
    printf '1..1\nok 1\n' >good.tap
}

@test "a verifier that passes exits with 0 and one line" {
    run "$PINFOLD" verify tap file=good.tap
    [[ $status -eq 0 ]]
    [[ $output == "tap: pass: 1 passed, 0 failed" ]]
}

@test "a failure exits with 1 and names rule, file, line and message" {
    run "$PINFOLD" verify csv file=t.csv number=amount
    [[ $status -eq 1 ]]
    [[ $output == *"amount (t.csv:3): x is no decimal number"* ]]
}

@test "what cannot be judged exits with 3, and is not called a failure" {
    run "$PINFOLD" verify csv file=none.csv
    [[ $status -eq 3 ]]
    [[ $output == "csv: broken: opening none.csv: No such file or directory" ]]
}

@test "standard input can be judged" {
    run "$PINFOLD" verify log file=- <good.tap
    [[ $status -eq 0 ]]
}

@test "several checks from a file: the worst verdict counts, each is shown" {
    echo '{"checks": [{"verify": "tap", "file": "good.tap"},
        {"verify": "csv", "name": "ledger", "file": "t.csv", "rows": 2, "number": ["amount"]}]}' >c.json
    run "$PINFOLD" verify --checks c.json
    [[ $status -eq 1 ]]
    [[ $output == *"tap: pass"* && $output == *"ledger: fail"* ]]
    run "$PINFOLD" verify --json --checks c.json
    [[ $status -eq 1 ]]
    echo "$output" | /usr/bin/python3 -c 'import json, sys
answer = json.load(sys.stdin)
assert answer["verdict"] == "fail", answer
assert [c["verdict"] for c in answer["checks"]] == ["pass", "fail"], answer
failure = answer["checks"][1]["failures"][0]
assert failure == {"name": "amount", "file": "t.csv", "line": 3,
                   "message": "x is no decimal number"}, failure'
}

@test "a file of checks that is not understood is broken, with its place" {
    echo '{"checks": [{"verify": "csv", "file": "t.csv"}, {"verify": "magic"}]}' >c.json
    run "$PINFOLD" verify --checks c.json
    [[ $status -eq 3 ]]
    [[ $output == *"check 1: there is no verifier magic"* ]]
}

@test "wrong usage exits with 2 and says what to do" {
    run "$PINFOLD" verify
    [[ $status -eq 2 && $output == *"--help"* ]]
    run "$PINFOLD" verify magic file=x
    [[ $status -eq 2 && $output == *"--list"* ]]
    run "$PINFOLD" verify csv t.csv
    [[ $status -eq 2 && $output == *"NAME=VALUE"* ]]
}

@test "the list shows every verifier with its arguments" {
    run "$PINFOLD" verify --list
    [[ $status -eq 0 ]]
    for name in exit log junit tap json-schema csv reconcile completeness; do
        [[ $output == *"$name: "* ]]
    done
}
