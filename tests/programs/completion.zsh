# completion.zsh - what zsh offers at the end of command lines, one line of matches for each.
#
#     zsh -f completion.zsh FOLDER LINE ...      FOLDER has the scripts, _PROGRAM
#
# Types the keys into a second zsh on a pseudo-terminal. Its compadd reports the matches, and the
# key after the tab says that they are complete. module_path and fpath are passed on for a zsh that
# is not installed.
zmodload zsh/zpty
folder=$1
shift
zpty shell zsh -f -i
zpty -w shell "PS1= PS2= RPS1=; unsetopt zle_bracketed_paste"
zpty -w shell "module_path=($module_path) fpath=($folder $fpath)"
zpty -w shell 'autoload -Uz compinit && compinit -u -D
compadd() {
    local -a found
    if (( ! ${@[(I)-(O|A|D)*]} )); then
        builtin compadd -O found "$@"
        print -rn -- "<${(j:,:)found}>"
    fi
    builtin compadd "$@"
}
over() { BUFFER=; print -n "<""over>" }
zle -N over
bindkey "^T" over
print "<""ready>"'
zpty -r shell seen '*<ready>*'
for line; do
    zpty -w -n shell "$line"$'\t\x14'
    zpty -r shell seen '*<over>*'
    offers=()
    while [[ $seen == *'<'* ]]; do
        seen=${seen#*'<'}
        offers+=(${(s:,:)${seen%%'>'*}})
        seen=${seen#*'>'}
    done
    print -r -- "$line:" ${(u)offers:#over}
done
zpty -d shell
