# bench_headline.awk - the tables of bench.sh --headline: each training step beside its fastest
# peer, then beside all. Pass it to awk before bench_tables.awk, whose functions and figures it uses
# and whose tables it replaces.

# A step's fastest peer; 0 if none was measured.
function fastest(name,    p, best, x, chosen) {
    for (p = 1; p <= peers; p++) {
        x = median("peer" SUBSEP name SUBSEP p, "seconds")
        if (x == "" || (chosen && x >= best)) continue
        best = x
        chosen = p
    }
    return chosen + 0
}

function seconds_of(row) { return median(row, "seconds") }

# One row of both tables: the figures of `theirs` and their ratios to ours.
function beside(row, theirs,    time, mb) {
    time = seconds_of(theirs)
    mb = median(theirs, "peak_mb")
    return sprintf("%s | %s | %s | %s |", show("%.3f", time), ratio(time, seconds_of(row)),
        show("%.0f", mb), ratio(median(row, "process_peak_mb"), mb))
}

function head(what) {
    print "\n| training step | tapegrad, s | its MB | " what " | s | ratio | MB | share of memory |"
    print line(8)
}

function row_head(row) {
    return sprintf("| %s | %s | %s |", meets[row], show("%.3f", seconds_of(row)),
        show("%.0f", median(row, "process_peak_mb")))
}

function rows_of(kind, all,    i, p, row, theirs) {
    for (i = 1; i <= rows[kind]; i++) {
        row = kind SUBSEP label[kind, i]
        if (!all) {
            p = fastest(meets[row])
            theirs = "peer" SUBSEP meets[row] SUBSEP p
            print row_head(row), (p ? peer_name[p] : "none"), "|", beside(row, theirs)
            continue
        }
        for (p = 1; p <= peers; p++) {
            theirs = "peer" SUBSEP meets[row] SUBSEP p
            if (seconds_of(theirs) != "")
                print row_head(row), peer_name[p], "|", beside(row, theirs)
        }
    }
}

END {
    print "Ratio: the peer's time over ours. Share of memory: ours over the peer's."
    head("fastest peer")
    rows_of("images", 0)
    rows_of("step", 0)
    head("peer")
    rows_of("images", 1)
    rows_of("step", 1)
    exit
}
