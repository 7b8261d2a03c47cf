# cmake -DPROGRAM=... -DNAME=... -DOUT=... -P print_manuals.cmake: writes the manual pages and
# completions that tp_install_program installs.
function(print_to file)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_FILE ${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT}/man1 ${OUT}/bash ${OUT}/zsh)
print_to(${OUT}/man1/${NAME}.1 --man)
print_to(${OUT}/bash/${NAME} --completion bash)
print_to(${OUT}/zsh/_${NAME} --completion zsh)
# A program of several commands has a page for each.
execute_process(COMMAND ${PROGRAM} --commands
                OUTPUT_VARIABLE commands RESULT_VARIABLE status ERROR_QUIET)
if(status EQUAL 0)
  string(STRIP "${commands}" commands)
  string(REPLACE "\n" ";" commands "${commands}")
  foreach(command ${commands})
    print_to(${OUT}/man1/${NAME}-${command}.1 ${command} --man)
  endforeach()
endif()
