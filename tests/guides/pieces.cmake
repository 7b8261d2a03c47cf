# Fails unless the pieces of PAGE marked "```c PROGRAM", a blank line between them, are FILE.
execute_process(COMMAND awk
  "/^```c ${PROGRAM}$/ { if (n++) print \"\"; on = 1; next } /^```$/ { on = 0 } on" ${PAGE}
  OUTPUT_VARIABLE pieces)
file(READ ${FILE} text)
if(NOT pieces STREQUAL text)
  message(FATAL_ERROR "The pieces of ${PROGRAM} in ${PAGE} are not ${FILE}")
endif()
