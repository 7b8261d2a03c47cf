# gpu_targets.awk - prints the performance targets of the CUDA backend, one line each: measured,
# wanted, met. Pass it to awk before bench_tables.awk, whose functions and figures it uses. The
# GPU's rates are the best of the run, ours or a peer's.

# The best rate of an op: ours in `key`, or a peer's `amount` (millions) over its best time.
function ceiling(op, key, amount,    best, p, name, ms) {
    name = op ", bf16"
    best = median("op" SUBSEP name, key)
    for (p = 1; p <= peers; p++) {
        ms = median("peer" SUBSEP name SUBSEP p, "best_ms")
        if (ms != "" && amount / ms > best) best = amount / ms
    }
    return best
}

function share(x, whole) { return x == "" || whole == "" || whole == 0 ? "" : x / whole }

# sign: ">" for at least, "<" for at most.
function target(what, measured, sign, wanted,    met) {
    met = (sign == ">" ? measured >= wanted : measured <= wanted) ? "yes" : "**no**"
    if (measured == "") met = "not measured"
    printf "| %s | %s | %s %s | %s |\n", what, show("%.2f", measured),
        sign == ">" ? "at least" : "at most", wanted, met
}

function op_targets(op, dtype, directions, whole, key, wanted,    i, n, list, name) {
    n = split(directions, list, " ")
    for (i = 1; i <= n; i++) {
        name = op ", " list[i] dtype
        target(name, share(median("op" SUBSEP name, key), whole), ">", wanted)
    }
}

END {
    # 8192^3 products; 2^27 bf16 elements, each read and written.
    matrix = ceiling("matmul 8192x8192x8192, forward", "gflops", 2 * 8192 ^ 3 / 1e6)
    bytes = ceiling("copy y = 2x, 128M elements, forward", "gbytes_per_s", 4 * 2 ^ 27 / 1e6)
    name = "ls_lm-small, 8 x 8192 tokens, bf16"
    lm = "step" SUBSEP name ", recompute none"
    if (median(lm, "matmul_gflops") > matrix) matrix = median(lm, "matmul_gflops")
    printf "The GPU: products %s TFLOP/s in bf16 (8192^3), copies %s GB/s.\n",
        show("%.0f", share(matrix, 1000)), show("%.0f", bytes)
    unfused = median("step" SUBSEP "ls_lm-tiny, 8 x 256 tokens, bf16, recompute none", "unfused")
    if (unfused != "")
        printf "Products of ls_lm-tiny, 8 x 256 tokens, that cuBLASLt did not join with their " \
            "biases: %d.\n", unfused
    print "\n| target | measured | wanted | met |"
    print line(4)
    for (p = 1; p <= peers; p++)
        if (peer_name[p] ~ /compiled/) compiled = "peer" SUBSEP name SUBSEP p
    target(name ", share of the rate of products", share(median(lm, "gflops"), matrix), ">", 0.36)
    target(name ", tokens/s over torch.compile's",
        share(median(lm, "tokens_per_s"), median(compiled, "tokens_per_s")), ">", 2)
    target(name ", memory over torch.compile's",
        share(median(lm, "device_peak_mb"), median(compiled, "peak_mb")), "<", 0.5)
    tiny = "step" SUBSEP "ls_lm-tiny, 8 x 256 tokens, bf16, graph, recompute none"
    target("ls_lm-tiny, 8 x 256 tokens, bf16, graph, time over that of its kernels",
        share(median(tiny, "seconds"), median(tiny, "kernel_seconds")), "<", 1.2)
    # Compute-bound on these GPUs; cuda/attention/ls_attention.cu has the lower bound.
    ls = "ls_attention 8x8192+8192 d512 h8 w512 l16 r1"
    op_targets(ls, ", bf16", "forward", matrix, "gflops", 0.40)
    op_targets(ls, ", bf16", "backward", matrix, "gflops", 0.20)
    n = split("mul 65536x512/gelu 65536x512/layernorm 65536x512/softmax 65536x512/" \
        "embedding 65536 of 208x512/chunk_project 8x8192x512 l16 r1", moving, "/")
    for (i = 1; i <= n; i++)
        op_targets(moving[i], ", bf16", "forward backward", bytes, "gbytes_per_s", 0.85)
    op_targets("adamw 64M elements", "", "forward", bytes, "gbytes_per_s", 0.85)
    print ""
}
