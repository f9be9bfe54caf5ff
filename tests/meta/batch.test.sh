# What a batch is made of and how: the numbers in front are those of the list of numeric checks. f64 where the order of additions
# may change (1e-12), equal numbers in f32 where it may not.
# limit: 300
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh

model m2 precision.compute=f64
model m4 precision.compute=f64 batch.micro=4
model f32

# 7: micro batches with 9, 26 and 1 targets are one batch: a token weighs the same everywhere.
masks="mask=0:4:13 mask=1:0:13 mask=2:1:13 mask=3:0:13"
run m4 big $masks
run m2 small micros=2 $masks
run m2 plain micros=2
equal "7 unequal targets" small big 1e-12
unlike 7 small plain

# 53: rows in another order.
run m4 order rows=2,0,3,1
run m4 rows rows=0,1,2,3
equal "53 rows permuted" order rows 1e-12
run m2 halves micros=2 rows=3,1,0,2
equal "53 across micro batches" halves rows 1e-12

# 48: a micro batch without targets is as none; a batch without targets is nothing at all, 0 and not 0/0.
run m2 first micros=1
run m2 skipped micros=2 mask=2:0:13 mask=3:0:13
equal "48 micro batch masked" skipped first 0
run f32 empty "mask=*:0:13"
[ "$(cut -d' ' -f1,2 "$T/empty.say")" = "0 0" ] || fail "48: a batch without targets: $(cat "$T/empty.say")"
for w in embed.w layers.0.attn.wqkv layers.1.mlp.down head.w; do
    [ -z "$(ask f32 "mask=*:0:13" nan run "touched=$w.grad" | tr -d ' ')" ] || fail "48: the gradient of $w is not 0"
done
echo "48 batch masked              gradients are 0"
# A batch without targets may not move a weight by its gradient, nor the moments: only decay does.
[ "$(ask f32 "mask=*:0:13" clip=1 lr=1e-3 run adamw | awk '{ print ($1 <= 2) }')" = 1 ] || fail "48: the update of a masked batch"

# 49: a row of padding has no influence, whatever it holds.
run f32 pad_1 rows=0,1 mask=1:0:13
run f32 pad_7 rows=0,7 mask=1:0:13
equal "49 row of padding" pad_1 pad_7 0

# 41: the loss times a power of two.
run f32 one gscale=0.03125
run f32 times gscale=32 unit=0.0009765625
equal "41 loss times 1024" times one 0

# 54: a layer that adds nothing.
model l3 L=3
run l3 three set=layers.2.attn.wo:0 set=layers.2.mlp.down:0 set=layers.2.mlp.down_b:0
run f32 two
equal "54 layer of zeros" three two 0
[ "$(ask l3 set=layers.2.mlp.down:0 run touched=layers.2.mlp.down.grad | wc -w)" = 40 ] || fail "54: what is zero gets no gradient"

# 24: what lies in memory before.
run f32 ones ones
run f32 nan nan
equal "24 filled with ones" ones two 0
equal "24 filled with NaN" nan two 0

# 40: many small gradients in a bf16 model are added in f32.
model bf16 precision.compute=bf16 T=3 D=16 E=4 F=8 L=1 batch.micro=1
run bf16 single rows=0 gscale=1
run bf16 many rows=0 micros=16384 gscale=0.00006103515625
"$COMPARE" "$T/many.st" "$T/single.st" 1e-3 >"$T/compared" || fail "40: $(cat "$T/compared")"
echo "40 16384 small gradients     $(tail -1 "$T/compared")"
