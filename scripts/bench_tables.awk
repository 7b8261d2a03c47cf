# bench_tables.awk - converts the JSON lines of bench.sh and gpu-report.sh to Markdown tables, with
# the median over the lines of a row. A line has only names and numbers, no nested objects. Each
# peer has its own columns.

# The value of a key in the current line, without quotes; empty if the key is absent.
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

# The median of the kept values; empty if there are none.
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

# The key of a row, which is added if it is new.
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

# Names by which our lines and the peers' are matched.
function dtype_name() { return get("dtype") == "bf16" ? ", bf16" : "" }
function step_name(    times) {
    times = get("batch") > 1 ? get("batch") " x " : ""
    return get("model") ", " times get("tokens") " tokens" dtype_name()
}
function images_name() {
    return get("model") ", " get("batch") " images, training step" dtype_name()
}
function op_name() { return get("op") " " get("shape") ", " get("direction") dtype_name() }

# The key of a peer's row; peers are numbered in order of appearance.
function peer_row(name,    peer) {
    peer = get("peer")
    if (!(peer in peer_number)) {
        peer_number[peer] = ++peers
        peer_name[peers] = peer
    }
    return "peer" SUBSEP name SUBSEP peer_number[peer]
}

/"error"/ {
    failed[++failures] = "| " get("op") " " get("shape") dtype_name() " | " get("error") " |"
    next
}
/"part"/ {
    name = get("tokens") != "" ? step_name() : images_name()
    if (!(name in profiled)) {
        profiled[name] = ++profiles
        profile_of[profiles] = name
    }
    profile_lines[name] = profile_lines[name] "| " get("part") ", " get("direction") " | " \
        get("calls") " | " ms(get("ms") + 0) " | " show("%.3f", get("share")) " |\n"
    next
}
/"images_per_s"/ {
    name = get("data") != "" ? get("data") : images_name()
    row = get("peer") != "" ? peer_row(name) : row_of("images", name)
    meets[row] = name
    on_gpu[row] = get("isa") == "cuda"
    keep_all(row, "images_per_s process_peak_mb device_peak_mb peak_mb utilisation seconds " \
        "kernel_seconds")
    next
}
/"peer"/ && /"model"/ {
    keep_all(peer_row(step_name()), "tokens_per_s seconds peak_mb")
    if (get("ran_batch") != "" && get("ran_batch") + 0 < get("batch") + 0)
        notes = notes get("peer") " ran out of memory for " step_name() \
            ": its tokens/s are for a batch of " get("ran_batch") \
            ", its memory is all of the GPU's.\n"
    next
}
/"peer"/ { keep_all(peer_row(op_name()), "ms best_ms"); next }
/"context"/ {
    row = row_of("decoding", get("model") " after " get("context") " tokens" dtype_name())
    keep_all(row, "ms_a_token process_peak_mb")
    next
}
/"model"/ {
    name = step_name() (get("graph") == 1 ? ", graph" : "")
    row = row_of("step", name ", recompute " get("recompute"))
    meets[row] = step_name()
    on_gpu[row] = get("isa") == "cuda"
    keep_all(row, "tokens_per_s gflops process_peak_mb device_peak_mb predicted_mb utilisation " \
        "sgemm_gflops matmul_gflops seconds kernel_seconds unfused")
    next
}
/"op"/ {
    row = row_of("op", op_name())
    meets[row] = op_name()
    keep_all(row, "ms gflops gbytes_per_s utilisation mb time_to_closed_form bytes_a_token")
}

# Each peer's figure and its ratio to ours: ours over theirs, or (inverse) theirs over ours.
function peer_columns(row, ours, key, inverse, format,    p, theirs, text) {
    for (p = 1; p <= peers; p++) {
        theirs = median("peer" SUBSEP meets[row] SUBSEP p, key)
        text = text sprintf(" %s | %s |", show(format, theirs),
            inverse ? ratio(theirs, ours) : ratio(ours, theirs))
    }
    return text
}

# The utilisation of each peer: the same FLOPs in its time.
function peer_utilisation(row, ours, used,    p, theirs, known_both, text) {
    for (p = 1; p <= peers; p++) {
        theirs = median("peer" SUBSEP meets[row] SUBSEP p, "tokens_per_s")
        known_both = ours != "" && ours != 0 && theirs != ""
        text = text " " (known_both ? sprintf("%.2f", used * theirs / ours) : "") " |"
    }
    return text
}

function peer_heads(what, compared,    p, text) {
    for (p = 1; p <= peers; p++)
        text = text sprintf(" %s%s |", what, p > 1 ? " (" p ")" : "") \
            (compared ? " " compared " |" : "")
    return text
}

function line(columns,    i, text) {
    text = "|"
    for (i = 1; i <= columns; i++) text = text "---|"
    return text
}

END {
    if (failures) print "| failed case | why |\n" line(2)
    for (i = 1; i <= failures; i++) print failed[i]
    if (failures) print ""
    for (p = 1; p <= peers; p++) print "Peer" (peers > 1 ? " (" p ")" : "") ": " peer_name[p]
    if (!peers) print "Peer: none"
    if (rows["step"]) {
        print "\n| training step | tapegrad tokens/s |" peer_heads("peer", "ratio") \
            " utilisation |" peer_heads("peer's") " of GFLOP/s | memory MB |" \
            peer_heads("peer MB", "ratio") " device MB | predicted | time over kernels |"
        print line(8 + 5 * peers)
    }
    for (i = 1; i <= rows["step"]; i++) {
        row = "step" SUBSEP label["step", i]
        ours = median(row, "tokens_per_s")
        memory = median(row, on_gpu[row] ? "device_peak_mb" : "process_peak_mb")
        rate = median(row, on_gpu[row] ? "matmul_gflops" : "sgemm_gflops")
        kernels = median(row, "kernel_seconds")
        used = median(row, "utilisation")
        printf "| %s | %s |%s %s |%s %s | %s |%s %s | %s | %s |\n", label["step", i],
            show("%.0f", ours), peer_columns(row, ours, "tokens_per_s", 0, "%.0f"),
            show("%.2f", used), peer_utilisation(row, ours, used), show("%.0f", rate),
            show("%.0f", memory), peer_columns(row, memory, "peak_mb", 0, "%.0f"),
            show("%.0f", median(row, "device_peak_mb")), show("%.0f", median(row, "predicted_mb")),
            ratio(median(row, "seconds"), kernels)
    }
    if (notes) printf "\n%s", notes
    if (rows["op"]) {
        print "\n| op | ms | GFLOP/s | GB/s | utilisation |" \
            peer_heads("peer ms", "times as fast") " MB | time to closed form | bytes a token |"
        print line(8 + 2 * peers)
    }
    for (i = 1; i <= rows["op"]; i++) {
        row = "op" SUBSEP label["op", i]
        ours = median(row, "ms")
        printf "| %s | %s | %s | %s | %s |%s %s | %s | %s |\n", label["op", i], ms(ours),
            show("%.0f", median(row, "gflops")), show("%.0f", median(row, "gbytes_per_s")),
            show("%.2f", median(row, "utilisation")), peer_columns(row, ours, "ms", 1, "%.3g"),
            show("%.1f", median(row, "mb")), show("%.2f", median(row, "time_to_closed_form")),
            show("%.0f", median(row, "bytes_a_token"))
    }
    if (rows["images"]) {
        print "\n| images | tapegrad images/s |" peer_heads("peer", "ratio") \
            " utilisation | memory MB |" peer_heads("peer MB", "ratio") " time over kernels |"
        print line(5 + 4 * peers)
    }
    for (i = 1; i <= rows["images"]; i++) {
        row = "images" SUBSEP label["images", i]
        ours = median(row, "images_per_s")
        memory = median(row, on_gpu[row] ? "device_peak_mb" : "process_peak_mb")
        printf "| %s | %s |%s %s | %s |%s %s |\n", label["images", i], ms(ours),
            peer_columns(row, ours, "images_per_s", 0, "%.3g"),
            show("%.2f", median(row, "utilisation")), show("%.0f", memory),
            peer_columns(row, memory, "peak_mb", 0, "%.0f"),
            ratio(median(row, "seconds"), median(row, "kernel_seconds"))
    }
    if (rows["decoding"]) {
        print "\n| decoding | ms a token | memory MB |"
        print line(3)
    }
    for (i = 1; i <= rows["decoding"]; i++) {
        row = "decoding" SUBSEP label["decoding", i]
        printf "| %s | %s | %s |\n", label["decoding", i], ms(median(row, "ms_a_token")),
            show("%.0f", median(row, "process_peak_mb"))
    }
    for (i = 1; i <= profiles; i++) {
        print "\n| " profile_of[i] ": op | calls | ms a step | share |"
        print line(4)
        printf "%s", profile_lines[profile_of[i]]
    }
}
