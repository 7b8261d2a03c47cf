# The programs of a page. Blocks "```c" make one, PAGE.c, in the order of the page; blocks "```c
# NAME" make PAGE_NAME.c. Rows of tables "| PyTorch | tapegrad |" are statements of PAGE.c: what is
# code in the second column, each followed by a check of the tape T. Blocks "```text" are what the
# program of the block before prints. Variables: page, out (folder), shown (the page's path for
# messages). Prints the names of the programs.
function add(line) {
  if (!(program in first)) {
    first[program] = 1
    names = names (names == "" ? "" : ";") program
    printf "" > (out "/" program ".c")
    printf "" > (out "/" program ".txt")
  }
  print line > (out "/" program ".c")
}
function code_of(cell) {
  sub(/^[^`]*`/, "", cell)
  sub(/`[^`]*$/, "", cell)
  return cell
}
/^```c( [a-z_]+)?$/ {
  program = page ($2 == "" ? "" : "_" $2)
  add("#line " FNR + 1 " \"" shown "\"")
  on = 1
  next
}
/^```text$/ { text = 1; next }
/^```$/ { on = text = 0; next }
on { add($0); next }
text { print > (out "/" program ".txt"); next }
/^\| PyTorch \| tapegrad \|/ { table = 1; next }
/^\|/ {
  if (table && $0 !~ /^\|---/) {
    split($0, cell, / \| /)
    program = page
    add("#line " FNR " \"" shown "\"")
    add("{ " code_of(cell[2]) "; }")
    add("if (!tp_ok(T)) return fprintf(stderr, \"%s\\n\", tp_why(T)), 1;")
  }
  next
}
{ table = 0 }
END { printf "%s", names }
