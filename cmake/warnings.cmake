# Warnings, sanitizers and reproducible file names for one target.
function(tp_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
    -Wstrict-prototypes -Wmissing-prototypes -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  # Sizes are enumeration constants here and are converted to floating point; only clang warns.
  target_compile_options(${target} PRIVATE
    $<$<C_COMPILER_ID:Clang,AppleClang>:-Wno-enum-float-conversion>)
  if(TAPEGRAD_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(TAPEGRAD_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  if(TAPEGRAD_SANITIZE) # without -O1 the tests take 1.4 times as long
    target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1> -fsanitize=${TAPEGRAD_SANITIZE}
      -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g1)
    target_link_options(${target} PUBLIC -fsanitize=${TAPEGRAD_SANITIZE})
  endif()
endfunction()

# Kernels omit the pointer checks of UBSan, which would double their run time and compile time:
# AddressSanitizer checks each access anyway.
set(TP_KERNEL_SANITIZE "")
if(TAPEGRAD_SANITIZE MATCHES "address")
  set(TP_KERNEL_SANITIZE -fno-sanitize=null,pointer-overflow,object-size)
endif()
