# Edges of shape: the numbers in front are those of the list of numeric checks. In f64 a model of awkward sizes is held against a
# larger one that contains it: masked behind position T, or with zeros behind an index; the larger one is of even sizes.
# limit: 300
. tests/lib/test.sh
. tests/lib/parity.sh
. tests/meta/lib.sh

# 42: rows of every length around the tiles. Attention is causal: behind T a longer row changes nothing.
model long precision.compute=f64 T=96
for t in 1 2 3 7 8 15 16 17 31 32 33 47 63 64 65 67; do
    model "t$t" precision.compute=f64 T=$t
    run "t$t" "t$t"
    run long "long$t" "mask=*:$t:96"
    equal "42 T = $t" "t$t" "long$t" 1e-12
done
unlike 42 long64 long65

# 43: odd and prime sizes within even ones, whose weights behind the cut are zero.
for odd in F=33:40:f F=1:40:f F=61:64:f E=3:8:e E=1:8:e E=7:8:e E=13:16:e G=1:2:g G=3:4:g; do
    IFS=:= read -r key n even dim <<<"$odd"
    model odd precision.compute=f64 rope=0 "$key=$n"
    [ -x "$T/$key=$even/probe" ] || model "$key=$even" precision.compute=f64 rope=0 "$key=$even"
    run odd "$key=$n"
    WORDS="cut=$dim:$n fill=0.25" run "$key=$even" "$key=$n-in"
    equal "43 $key = $n in $even" "$key=$n" "$key=$n-in" 1e-12
done
