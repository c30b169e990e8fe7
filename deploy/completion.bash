# bash completion for pinfold and pinfold-server: asks the programs themselves, so that it knows
# what they know.

# The commands of an overview: what stands first in its indented lines, until a blank one.
_pinfold_commands() {
    "$@" --help 2>/dev/null | awk '
        /^Commands:/ { on = 1; next }
        /^usage: .* COMMAND/ { getline; on = 1; next }
        on && !/^  [a-z]/ { exit }
        on { print $1 }'
}

_pinfold_options() {
    "$@" --help 2>/dev/null | grep -oE -- '(^|[ ,])--[a-z][a-z-]+' | tr -d ' ,' | sort -u
}

_pinfold() {
    local current=${COMP_WORDS[COMP_CWORD]} i
    local call=("${COMP_WORDS[0]}")
    COMPREPLY=()
    # What follows -- is somebody else's command line.
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} != -- ]] || return 0
        [[ ${#call[@]} -gt 2 || ! ${COMP_WORDS[i]} =~ ^[a-z][a-z-]*$ ]] || call+=("${COMP_WORDS[i]}")
    done
    if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_pinfold_options "${call[@]}")" -- "$current")
    elif [[ ${#call[@]} -le 2 ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_pinfold_commands "${call[@]}")" -- "$current")
    fi
}
complete -o default -F _pinfold pinfold pinfold-server
