# Writes the rows that the program of docs/guide/own-data.md reads.
execute_process(COMMAND awk "BEGIN {
  print \"petal length,petal width,sepal length,sepal width,species\"
  split(\"setosa versicolor virginica\", name, \" \")
  for (i = 0; i < 150; i++) {
    k = i % 3
    for (c = 1; c <= 4; c++) { x = (x * 37 + 11) % 101; noise[c] = x / 101 - 0.5 }
    printf \"%.2f,%.2f,%.2f,%.2f,%s\\n\", 1.4 + 2 * k + noise[1], 0.3 + 0.9 * k + noise[2],
      5 + 0.7 * k + noise[3], 3.4 - 0.3 * k + noise[4], name[k + 1] } }"
  OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/pages/own_data/flowers.csv COMMAND_ERROR_IS_FATAL ANY)
