# kinds.sh: what a printed program does with its fused nodes; for mg.sh and structure.test.sh.

# kinds FILE FUNC: "row N, map M" of the fused nodes of a Func.
kinds() {
    awk -v func="$2" '
        $1 == "body" { body = $2 }
        body && $1 ~ /^n[0-9]+$/ && $3 ~ /^(sum|rowmax|rowmin|lse)$/ { row[body] = 1 }
        $1 == "end" { body = ""; on = 0 }
        $1 == "func" { on = $2 == func }
        on { for (i = 1; i < NF; i++) if ($i == "fused") { if ($(i + 1) in row) r++; else m++ } }
        END { printf "row %d, map %d\n", r, m }' "$1"
}
