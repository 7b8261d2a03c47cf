# bench_tables.awk - turns the JSON lines of bench.sh into Markdown tables, medians over the lines of
# one row. A line holds names and numbers only, no nested objects.

# The value of a key in the line at hand, without quotes; empty if it is not there.
function get(key,    rest) {
    if (!match($0, "\"" key "\": *")) return ""
    rest = substr($0, RSTART + RLENGTH)
    if (substr(rest, 1, 1) == "\"") {
        rest = substr(rest, 2)
        return substr(rest, 1, index(rest, "\"") - 1)
    }
    match(rest, /^[-+.0-9eE]+/)
    return substr(rest, 1, RLENGTH)
}

function keep(row, key,    value) {
    value = get(key)
    if (value == "") return
    values[row, key, ++count[row, key]] = value + 0
}

# The median of what was kept; empty if nothing was.
function median(row, key,    n, i, j, x, v) {
    n = count[row, key]
    if (!n) return ""
    for (i = 1; i <= n; i++) {
        x = values[row, key, i]
        for (j = i - 1; j >= 1 && v[j] > x; j--) v[j + 1] = v[j]
        v[j + 1] = x
    }
    return v[int((n + 1) / 2)]
}

function show(format, x) { return x == "" ? "" : sprintf(format, x) }
function ms(x) { return show(x >= 100 ? "%.0f" : "%.3g", x) }
function ratio(a, b) { return a == "" || b == "" || b == 0 ? "" : sprintf("%.2f", a / b) }

# The number of a row, which is new or known.
function row_of(kind, name,    key) {
    key = kind SUBSEP name
    if (!(key in known)) {
        known[key] = ++rows[kind]
        label[kind, rows[kind]] = name
    }
    return key
}

function keep_all(row, keys,    i, n, list) {
    n = split(keys, list, " ")
    for (i = 1; i <= n; i++) keep(row, list[i])
}

/"peer"/ { peer = get("peer") }
/"peer"/ && /"model"/ { keep_all("peer step" SUBSEP get("model") get("tokens"), "tokens_per_s peak_mb"); next }
/"peer"/ { keep("peer op" SUBSEP get("op") get("shape") get("direction"), "ms"); next }
/"context"/ {
    keep_all(row_of("decoding", get("model") " after " get("context") " tokens"), "ms_a_token process_peak_mb")
    next
}
/"model"/ {
    row = row_of("step", get("model") ", " get("tokens") " tokens, recompute " get("recompute"))
    peer_row[row] = "peer step" SUBSEP get("model") get("tokens")
    keep_all(row, "tokens_per_s process_peak_mb device_peak_mb predicted_mb utilisation sgemm_gflops")
    next
}
/"op"/ {
    row = row_of("op", get("op") " " get("shape") ", " get("direction"))
    peer_row[row] = "peer op" SUBSEP get("op") get("shape") get("direction")
    keep_all(row, "ms gflops gbytes_per_s utilisation mb time_to_closed_form bytes_a_token")
}

END {
    print "Peer: " (peer == "" ? "none" : peer)
    print "\n| training step | tapegrad tokens/s | peer | ratio | utilisation | of GFLOP/s | memory MB | peer | ratio | device MB | predicted |"
    print "|---|---|---|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= rows["step"]; i++) {
        row = "step" SUBSEP label["step", i]
        other = peer_row[row]
        ours = median(row, "tokens_per_s"); theirs = median(other, "tokens_per_s")
        memory = median(row, "process_peak_mb"); their_memory = median(other, "peak_mb")
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", label["step", i],
            show("%.0f", ours), show("%.0f", theirs), ratio(ours, theirs),
            show("%.2f", median(row, "utilisation")), show("%.0f", median(row, "sgemm_gflops")),
            show("%.0f", memory), show("%.0f", their_memory), ratio(memory, their_memory),
            show("%.0f", median(row, "device_peak_mb")), show("%.0f", median(row, "predicted_mb"))
    }
    print "\n| op | ms | GFLOP/s | GB/s | utilisation | peer ms | times as fast | MB | time to closed form | bytes a token |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= rows["op"]; i++) {
        row = "op" SUBSEP label["op", i]
        ours = median(row, "ms"); theirs = median(peer_row[row], "ms")
        printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", label["op", i], ms(ours),
            show("%.0f", median(row, "gflops")), show("%.0f", median(row, "gbytes_per_s")),
            show("%.2f", median(row, "utilisation")), ms(theirs), ratio(theirs, ours),
            show("%.1f", median(row, "mb")), show("%.2f", median(row, "time_to_closed_form")),
            show("%.0f", median(row, "bytes_a_token"))
    }
    if (!rows["decoding"]) exit
    print "\n| decoding | ms a token | memory MB |"
    print "|---|---|---|"
    for (i = 1; i <= rows["decoding"]; i++) {
        row = "decoding" SUBSEP label["decoding", i]
        printf "| %s | %s | %s |\n", label["decoding", i], ms(median(row, "ms_a_token")),
            show("%.0f", median(row, "process_peak_mb"))
    }
}
