# Runs PROGRAM, which must succeed and, unless the page shows nothing, print what EXPECTED holds.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed ERROR_VARIABLE errors RESULT_VARIABLE rc)
if(rc)
  message(FATAL_ERROR "${PROGRAM} ended with ${rc}\n${printed}${errors}")
endif()
file(READ ${EXPECTED} expected)
if(NOT expected STREQUAL "" AND NOT printed STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} printed\n${printed}and the page says\n${expected}")
endif()
