#!/usr/bin/env bash
# demo.sh [text=FILE] [key=value ...]: from nothing to a model that writes, and a judgement of it. Run by ./build.sh demo.
#
# The text is the King James Bible of Debian's bible-kjv-text (unpacked into a cache folder, not installed), else the C headers
# of this machine, else FILE. Every tenth chapter (file, part) is held out. key=value goes to the spec: `demo.sh train.lr=0`
# must fail, and so must a model with `window=1` or a text of random bytes.
#
# Judged are: the model's loss on what was held out against models that count (examples/ngram.c), and the share of the
# words it writes that occur in the text. Exit code 1 if it misses one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export LC_ALL=C

MARGIN=0.08   # nats a byte that the model must be under the best n-gram model
WORDS=85      # per cent of the sampled words that must occur in the text
dir=${DEMO_DIR:-build/demo}
cache=${XDG_CACHE_HOME:-${HOME:-$PWD/build}/.cache}/megagen/corpus
text=
keys=()
for a in "$@"; do
    case $a in
    text=*) text=${a#text=} ;;
    *=*) keys+=("$a") ;;
    *) echo "usage: ./build.sh demo [text=FILE] [key=value ...]" >&2 && exit 2 ;;
    esac
done
phase() { printf '\n== %s   (%d s)\n' "$*" "$SECONDS"; }

# ---- the text ------------------------------------------------------------------------------------

kjv_whole() { [ "$(wc -lc <"$1" | tr -s ' ' | sed 's/^ //')" = "31102 4404412" ]; }

# Prints one verse a line into $cache/kjv.txt. The program needs libreadline, which may be missing, too.
kjv_fetch() {
    ! { [ -f "$cache/kjv.txt" ] && kjv_whole "$cache/kjv.txt"; } || return 0
    command -v apt-get >/dev/null 2>&1 && command -v dpkg >/dev/null 2>&1 || return 1
    local tmp lib
    local -a opt=()
    mkdir -p "$cache"
    tmp=$(mktemp -d "$cache/unpack.XXXXXX")
    if ! apt-cache show bible-kjv-text >/dev/null 2>&1; then # no package lists here: lists of our own, which need no root
        mkdir -p "$tmp/lists/partial" "$tmp/apt/archives/partial"
        opt=(-o "Dir::State::Lists=$tmp/lists" -o "Dir::Cache=$tmp/apt")
        apt-get "${opt[@]}" update -qq >/dev/null 2>&1 || true
    fi
    lib=$(apt-cache "${opt[@]}" depends bible-kjv 2>/dev/null | sed -n 's/.*Depends: \(libreadline[^ ]*\).*/\1/p' | sed -n 1p)
    (cd "$tmp" && apt-get "${opt[@]}" download -qq bible-kjv bible-kjv-text ${lib:+"$lib"}) >/dev/null 2>&1 ||
        { rm -rf "$tmp" && return 1; }
    for p in "$tmp"/*.deb; do dpkg -x "$p" "$tmp"; done
    LD_LIBRARY_PATH=$(echo "$tmp"/usr/lib/*-linux-gnu "$tmp"/lib/*-linux-gnu | tr " " :) \
        "$tmp/usr/bin/bible" -p "$tmp/usr/lib/" -f 'gen1:1-rev22:21' >"$tmp/kjv.txt" 2>/dev/null || true
    kjv_whole "$tmp/kjv.txt" && mv "$tmp/kjv.txt" "$cache/kjv.txt"
    rm -rf "$tmp"
    [ -f "$cache/kjv.txt" ]
}

split_kjv() { # a chapter is what stands before the colon
    awk -F: -v t="$dir/train.txt" -v v="$dir/valid.txt" \
        '{ if ($1 != last) { n++; last = $1 } print > (n % 10 == 0 ? v : t) }' "$1"
}

split_headers() { # six megabytes at most
    find /usr/include -name '*.h' -size -200k | sort | awk -v t="$dir/train.txt" -v v="$dir/valid.txt" \
        '{ n++; f = n % 10 == 0 ? v : t
           while ((getline line < $0) > 0 && bytes < 6e6) { print line > f; bytes += length(line) + 1 }
           close($0) }'
    [ -s "$dir/valid.txt" ]
}

split_file() { # every tenth part of 4 KiB, whatever is in it
    rm -rf "$dir/parts" && mkdir "$dir/parts"
    split -b 4096 -a 6 -d "$1" "$dir/parts/p"
    cat "$dir"/parts/p*[0-8] >"$dir/train.txt"
    cat "$dir"/parts/p*9 >"$dir/valid.txt" || { echo "demo.sh: $1 is too short" >&2 && exit 5; }
    rm -rf "$dir/parts"
}

rm -rf "$dir"
mkdir -p "$dir"
phase "text"
enforce=1
if [ -n "$text" ]; then
    split_file "$text"
    what="$text, every tenth part of 4 KiB held out"
elif kjv_fetch; then
    split_kjv "$cache/kjv.txt"
    what="the King James Bible, every tenth chapter held out"
elif split_headers; then
    what="the C headers in /usr/include, every tenth file held out (no archive answered; the bar is printed, not enforced)"
    enforce=
else
    echo "demo.sh: no text: the archive of bible-kjv-text does not answer and /usr/include is empty; use text=FILE" >&2
    exit 3
fi
echo "$what: $(wc -c <"$dir/train.txt") bytes to train on, $(wc -c <"$dir/valid.txt") held out"
./megagen data prepare "$dir/train.txt" -o "$dir/train"
./megagen data prepare "$dir/valid.txt" -o "$dir/valid"

# ---- what counting can do ------------------------------------------------------------------------

phase "n-gram models (Witten-Bell), held-out loss"
"${CC:-cc}" -std=gnu11 -O2 -o "$dir/ngram" examples/ngram.c -lm -pthread
"$dir/ngram" "$dir/train.txt" "$dir/valid.txt" | tee "$dir/ngram.txt"
best=$(sed -n 's/^best *\([0-9.]*\).*/\1/p' "$dir/ngram.txt")

# ---- the model -----------------------------------------------------------------------------------

phase "compile specs/tiny.lua"
./megagen specs/tiny.lua "data.train=$dir/train" "data.valid=$dir/valid" "${keys[@]}" -o "$dir/tiny"

phase "train"
"$dir/tiny/trainer" "out=$dir/run" resume=never log.every=200

phase "evaluate"
"$dir/tiny/trainer" eval "ckpt=$dir/run" by_position=true | tee "$dir/eval.txt"
loss=$(sed -n 's/.*valid loss \([0-9.]*\).*/\1/p' "$dir/eval.txt" | sed -n 1p)

phase "samples"
: >"$dir/samples.txt"
i=0
for prompt in "And the LORD said" "Then came" "In those days" "Blessed"; do
    i=$((i + 1))
    "$dir/tiny/trainer" sample "ckpt=$dir/run" "prompt=$prompt" sample.tokens=400 "seed=$i" >"$dir/sample.txt"
    cat "$dir/sample.txt"
    echo
    # The first word is the prompt's and the last one may be cut short.
    sed -e '$s/[A-Za-z]*$//' "$dir/sample.txt" >>"$dir/samples.txt"
    echo >>"$dir/samples.txt"
done

# ---- judgement -----------------------------------------------------------------------------------

share=$(awk 'BEGIN { FS = "[^A-Za-z]+" }
    NR == FNR { for (i = 1; i <= NF; i++) known[$i] = 1; next }
    { for (i = 1; i <= NF; i++) if ($i != "") { n++; if ($i in known) k++ } }
    END { printf "%.1f", n ? 100 * k / n : 0 }' <(cat "$dir/train.txt" "$dir/valid.txt") "$dir/samples.txt")

phase "judgement"
[ -n "$loss" ] || { echo "no loss in $dir/eval.txt" && exit 1; }
code=0
judge() { # what, value, relation, bound
    if awk -v a="$2" -v b="$4" -v r="$3" 'BEGIN { exit !(r == "<=" ? a <= b : a >= b) }'; then
        echo "reached  $1: $2 $3 $4"
    else
        echo "MISSED   $1: $2, must be $3 $4"
        [ -z "$enforce" ] || code=1
    fi
}
judge "held-out loss, nats/byte (best n-gram $best minus $MARGIN)" "$loss" "<=" \
    "$(awk -v b="$best" -v m=$MARGIN 'BEGIN { printf "%.4f", b - m }')"
judge "words that occur in the text, %" "$share" ">=" $WORDS
echo "the model is in $dir/run, its program and sources in $dir/tiny; all of it took $SECONDS s"
exit $code
