#!/usr/bin/env bash
# robust_escape.test.sh: no text of a spec reaches C as code: a name, a comment or a path with bytes that mean something there is refused
# with a message, or what is generated compiles, trigraphs and all.
# limit: 300
. "$(dirname "$0")/lib/test.sh"
cd "$T" || exit
places=(LN OP DOC LAYER MARK W NAME LNAME DATA PROMPT)
texts=('a\"b' '*/ int x; /*' '// \\\\\n' '??/' '%d%s%n' '$(id)' 'a\\' 'a\0b' 'é€' '\xff\xfe' 'NULL' 'int' 'c' "$(printf 'x%.0s' {1..3000})")
cat >base.lua <<'END'
local mg <const> = require "megagen"
local block = mg.block { mg.residual { mg.rmsnorm { name = "@LN@" }, mg.mlp { name = "mlp", hidden = 8 } } }
local op = mg.op ("@OP@") { doc = "@DOC@", sig = "x[..] -> y[..]", body = "y = x * 2.0" }
local lay = mg.layer("@LAYER@", function(x) return mg.mark(op(x), "@MARK@") * mg.weight("@W@", "d", "one") end)
return mg.spec { name = "@NAME@", model = mg.decoder { vocab = 9, dim = 8, ctx = 4, mg.stack(1, block), lay { name = "@LNAME@" }, mg.rmsnorm {} },
  batch = { micro = 1 }, data = { tokenizer = "bytes", train = "@DATA@" }, sample = { prompt = "@PROMPT@" } }
END
base=$(cat base.lua)
compiled=0 refused=0
for place in "${places[@]}"; do
    for text in "${texts[@]}"; do
        spec=${base//"@$place@"/"$text"}
        for p in "${places[@]}"; do spec=${spec//"@$p@"/"v_${p,,}"}; done
        printf '%s\n' "$spec" >s.lua
        code=0
        timeout 20 "$MEGAGEN" show s.lua -s emit -o o >said 2>&1 || code=$?
        if [ $code = 0 ]; then
            compiled=$((compiled + 1))
            for f in model funcs rows main; do
                "${CC:-cc}" -std=gnu11 -trigraphs -D_GNU_SOURCE -Wall -Wextra -Wno-psabi -Wno-trigraphs -Werror -Io/runtime -Io/kernels -Io/kernels/cpu -Io \
                    -fsyntax-only o/$f.c >words 2>&1 || fail "$place = $text: $f.c: $(head -3 words)"
            done
        else
            refused=$((refused + 1))
            [ $code = 1 ] && grep -q 'error\[E' said && ! grep -q E0199 said || fail "$place = ${text:0:40}: exit $code: $(head -3 said)"
        fi
    done
done
echo "$compiled compiled, $refused refused"
[ $compiled -ge 30 ] && [ $refused -ge 30 ] || fail "$compiled compiled, $refused refused: the base spec is no longer what it was"
