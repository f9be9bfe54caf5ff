# 38: rotary positions far out. The f32 tables of 32768 and 131072 positions, plain and scaled, against the formulas in long double:
# to 1e-6 everywhere, and no position is that of its neighbour.
# limit: 120
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh
for t in 32768 131072; do
    for scaling in none llama3 yarn; do
        model "$scaling" T=$t L=1 theta=500000.0 batch.micro=1 scaling=$scaling
        ask "$scaling" rope=500000:$scaling >"$T/say"
        read -r worst distinct <"$T/say"
        [ "$distinct" = distinct ] || fail "38 $scaling, T = $t: two neighbours have the same angle"
        awk -v w="$worst" 'BEGIN { exit !(w > 0 && w <= 1e-6) }' || fail "38 $scaling, T = $t: $worst from the formula"
        echo "38 $scaling, T = $t: $worst"
    done
done
# The comparison sees another scaling.
ask llama3 rope=500000:yarn >"$T/say"
awk '{ exit !($1 > 1e-2) }' "$T/say" || fail "38: llama3 is within $(cat "$T/say") of yarn"
