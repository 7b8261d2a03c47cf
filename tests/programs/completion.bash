# completion.bash - what bash offers at the end of command lines, one line of words for each.
#
#     bash completion.bash FOLDER LINE ...       FOLDER has the scripts, named like their programs
#
# Calls the functions as readline does, with "--flag=VALUE" as three words. -o default and
# -o dirnames leave files and folders to readline.
folder=$1
shift
compopt() { COMPREPLY=("$@"); }
for line; do
    read -ra COMP_WORDS <<<"${line//=/ = }"
    [[ $line != *[\ =] ]] || COMP_WORDS+=("")
    [[ $line != *= ]] || unset 'COMP_WORDS[-1]' # the cursor is on the =
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    source "$folder/${COMP_WORDS[0]}" && "_${COMP_WORDS[0]}" || exit
    echo "$line:" "${COMPREPLY[@]}"
done
[[ $(complete -p "${COMP_WORDS[0]}") == *" -F _${COMP_WORDS[0]} "* ]] # registered
