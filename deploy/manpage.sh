#!/bin/bash
# manpage.sh PROGRAM SECTION: prints a manual page that holds what the program's --help says, and
# that of each of its commands.
set -euo pipefail

program=$1
section=$2
name=${program##*/}

# Lines as they are: no line may begin a request, no backslash an escape.
verbatim() {
    echo '.nf'
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"
    echo '.fi'
}

# commands [COMMAND]: the names of an overview, what stands first in its indented lines, until a
# blank one.
commands() {
    "$program" "$@" --help | awk '
        /^Commands:/ { on = 1; next }
        /^usage: .* COMMAND/ { getline; on = 1; next }
        on && !/^  [a-z]/ { exit }
        on { print $1 }'
}

about() {
    case $name in
    pinfold) echo 'run commands in jails and say why they ended' ;;
    pinfold-server) echo 'serve the HTTP API of Pinfold, and administer it' ;;
    pinfold-runner-docker) echo 'make the jails of Pinfold of containers of a Docker engine' ;;
    pinfold-runner) echo 'build and drive the jails of Pinfold' ;;
    esac
}

echo ".TH ${name^^} $section"
echo '.SH NAME'
echo "$name \\- $(about)" | sed 's/-\([a-z]\)/\\-\1/g'
echo '.SH DESCRIPTION'
"$program" --help | verbatim
for command in $(commands); do
    case $command in help | version) continue ;; esac
    echo ".SH ${name^^} ${command^^}"
    "$program" "$command" --help | verbatim
    for inner in $(commands "$command"); do
        echo ".SS $name $command $inner"
        "$program" "$command" "$inner" --help | verbatim
    done
done
echo '.SH SEE ALSO'
echo '/usr/share/doc/pinfold/README.md'
