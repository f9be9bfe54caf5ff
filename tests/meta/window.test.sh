# 46: a sliding window. At position t of a layer with window w, what counts are the w tokens up to t; so in f64 a row of 13 gives the
# loss and gradients of all its pieces of w tokens, each with the target of its last token only, by a causal model whose rows are w long.
# A window of the row's length and more gives the bits of no window.
# limit: 120
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh
for w in 0 1 2 12 13 14; do
    model "w$w" precision.compute=f64 L=1 "window=$w"
done
for w in 1 2 12; do
    model "t$w" precision.compute=f64 L=1 "T=$w"
    run "w$w" "w$w" starts=0,20 "mask=*:0:$((w - 1))"
    run "t$w" "t$w" "starts=$(seq -s, 0 $((13 - w))),$(seq -s, 20 $((33 - w)))" "mask=*:0:$((w - 1))" "micros=$((14 - w))"
    equal "46 window $w" "w$w" "t$w" 1e-12
    run w0 "w0-$w" starts=0,20 "mask=*:0:$((w - 1))"
    unlike 46 "w$w" "w0-$w"
done
for w in 0 13 14; do
    run "w$w" "w$w" starts=0,20
    same "$T/w0.st" "$T/w$w.st"
    same "$T/w0.say" "$T/w$w.say"
done
