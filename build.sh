#!/usr/bin/env bash
# build.sh: the only build system. It needs bash, coreutils and a C compiler; what is missing it names, and installs or
# unpacks on request. `./build.sh help` prints the verbs.
#
# Objects are cached by content (compiler, flags, source, headers) under ${MG_CACHE}, so that worktrees and variants share
# them and a second build compiles nothing. Outputs: ./megagen, build/libmg.a, build/VARIANT/ for the variants of the tests.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "${BASH_SOURCE[0]}")"
export LC_ALL=C

# ---- names --------------------------------------------------------------------------------------

MG_JOBS=${MG_JOBS:-2}
if [ -z "${MG_CACHE:-}" ]; then
    MG_CACHE=build/cache
    if [ -n "${XDG_CACHE_HOME:-${HOME:-}}" ]; then MG_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/megagen; fi
fi
YES=${MG_YES:-}

# psabi: vectors wider than the machine's are passed in memory, between our own functions only.
WARN="-Wno-psabi -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla"
STD="-std=gnu11 -D_GNU_SOURCE -pthread -I. -Igenerator -Iruntime -Ikernels/cpu"

# NAME|package|pkg-config name|what to include|an expression that needs the library|-l flags|places of headers below a prefix
LIBS="
lua|liblua5.4-dev|lua5.4|lua.h lauxlib.h|luaL_newstate() == 0 && sizeof(char[LUA_VERSION_NUM == 504 ? 1 : -1])|-llua5.4|lua5.4
jansson|libjansson-dev|jansson|jansson.h|json_null() == 0|-ljansson|
pcre2|libpcre2-dev|libpcre2-8|pcre2.h|pcre2_config(PCRE2_CONFIG_UNICODE, 0) == 0|-lpcre2-8|
zlib|zlib1g-dev|zlib|zlib.h|zlibVersion() == 0|-lz|
xxhash|libxxhash-dev|libxxhash|xxhash.h|XXH3_64bits(0, 0) == 0||
utf8proc|libutf8proc-dev|libutf8proc|utf8proc.h|utf8proc_version() == 0|-lutf8proc|
cmocka|libcmocka-dev|cmocka|stdarg.h stddef.h setjmp.h stdint.h cmocka.h|(cmocka_set_message_output(CM_OUTPUT_STDOUT), 0)|-lcmocka|
"

say() { printf '%s\n' "$*"; }
die() { # code, message
    local code=$1
    shift
    printf 'build.sh: %s\n' "$*" >&2
    exit "$code"
}

# ---- what is on this machine ---------------------------------------------------------------------

# Folders whose names may hold blanks are used through links in build/, so that flags stay lists of words.
gathered() { [ ! -e build/gathered ] || say build/gathered; }

# A program on PATH is not enough: a compiler without libc headers is a missing package, too.
find_cc() {
    local c dir
    dir=$(gathered)
    for c in ${CC:+"$CC"} ${dir:+"$dir/bin/cc"} cc gcc clang; do
        if cc_works "$c"; then
            CC=$c
            return 0
        fi
    done
    CC=
    return 1
}

trap 'rm -f "build/probe.$$" "build/probe.$$.c"' EXIT # two runs may probe at once

cc_works() {
    command -v "${1%% *}" >/dev/null 2>&1 || return 1
    printf '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' |
        $1 -x c - -o "build/probe.$$" 2>/dev/null && "build/probe.$$" >/dev/null
}

find_ar() {
    local c dir
    dir=$(gathered)
    for c in ${AR:+"$AR"} ${dir:+"$dir/bin/ar"} ar gcc-ar llvm-ar; do
        command -v "$c" >/dev/null 2>&1 && AR=$c && return 0
    done
    return 1
}

try() { # includes, expression, flags...
    local inc=$1 expr=$2 h
    shift 2
    {
        [ "$inc" = pcre2.h ] && say '#define PCRE2_CODE_UNIT_WIDTH 8'
        [ "$inc" = xxhash.h ] && say '#define XXH_INLINE_ALL'
        for h in $inc; do say "#include <$h>"; done
        say "int main(void) { return ${expr//\\/}; }"
    } >"build/probe.$$.c"
    $CC -std=gnu11 "build/probe.$$.c" -o "build/probe.$$" "$@" 2>>build/probe.log || return 1
    "build/probe.$$" 2>>build/probe.log || [ $? != 127 ] # 127: the loader does not find the library
}

# Sets FOUND to "compile flags|link flags" of the first place that works: the compiler's own search path (CPATH and
# LIBRARY_PATH included), MG_PREFIX and what `gather` unpacked, pkg-config, the distribution's folder.
find_lib() { # pkg-config name, includes, expression, libs, subfolder
    local pc=$1 inc=$2 expr=$3 libs=$4 sub=$5 p c l
    local -a tail=(-lm -ldl -pthread)
    # shellcheck disable=SC2086 # flags are lists
    if try "$inc" "$expr" $libs "${tail[@]}"; then
        FOUND="|$libs"
        return 0
    fi
    for p in ${MG_PREFIX:+"$MG_PREFIX"} "$(gathered)" ${sub:+/usr}; do
        [ -n "$p" ] || continue
        [ ! -d "$p/usr/include" ] || p=$p/usr
        case $p in *[[:space:]]*) ln -sfn "$p" build/prefix && p=build/prefix ;; esac
        c="-I$p/include${sub:+ -I$p/include/$sub} -I$p/include/$MULTIARCH"
        l="-L$p/lib -L$p/lib/$MULTIARCH"
        [ "$p" != /usr ] || { c="-I/usr/include/$sub" l=; }
        # shellcheck disable=SC2086
        if [ -n "$libs" ] && [ "$p" != /usr ] && try "$inc" "$expr" $c $l -Wl,-Bstatic $libs -Wl,-Bdynamic "${tail[@]}"; then
            FOUND="$c|$l -Wl,-Bstatic $libs -Wl,-Bdynamic"
            return 0
        fi
        l="$l${l:+ -Wl,-rpath,$p/lib:$p/lib/$MULTIARCH} $libs"
        # shellcheck disable=SC2086
        if try "$inc" "$expr" $c $l "${tail[@]}"; then
            FOUND="$c|$l"
            return 0
        fi
    done
    if command -v pkg-config >/dev/null 2>&1 && c=$(pkg-config --cflags "$pc" 2>/dev/null); then
        l=$(pkg-config --libs "$pc")
        # shellcheck disable=SC2086
        if try "$inc" "$expr" $c $l "${tail[@]}"; then
            FOUND="$c|$l"
            return 0
        fi
    fi
    return 1
}

# Fills CC, AR, CFLAGS_LIBS, LDLIBS, LDLIBS_TEST and MISSING (packages). The answer is kept in build/config until the
# compiler or the environment changes.
configure() {
    local XXHASH_H key name pkg pc inc expr libs sub
    mkdir -p build
    MISSING=
    find_cc || MISSING="gcc libc6-dev"
    find_ar || MISSING="${MISSING:-} binutils"
    key="$CC $(${CC:-true} --version 2>/dev/null | sed -n 1p) ${MG_PREFIX:-} ${CPATH:-} ${LIBRARY_PATH:-} ${PKG_CONFIG_PATH:-} $(readlink build/gathered || true)"
    # shellcheck disable=SC1091 # written below
    if [ -f build/config ] && [ "$(head -1 build/config)" = "# $key" ] && . build/config && [ -z "$MISSING" ]; then return; fi
    MULTIARCH=
    [ -z "$CC" ] || MULTIARCH=$($CC -print-multiarch 2>/dev/null || true)
    MULTIARCH=${MULTIARCH:-$(uname -m)-linux-gnu}
    CFLAGS_LIBS='' LDLIBS='' LDLIBS_TEST=''
    : >build/probe.log
    while IFS='|' read -r name pkg pc inc expr libs sub; do
        [ -n "$name" ] || continue
        if [ -n "$CC" ] && find_lib "$pc" "$inc" "$expr" "$libs" "$sub"; then
            CFLAGS_LIBS="$CFLAGS_LIBS ${FOUND%%|*}"
            if [ "$name" = cmocka ]; then LDLIBS_TEST=${FOUND#*|}; else LDLIBS="$LDLIBS ${FOUND#*|}"; fi
        else
            MISSING="$MISSING $pkg"
        fi
    done <<<"$LIBS"
    MISSING=${MISSING# }
    [ -z "$MISSING" ] || return 0
    # shellcheck disable=SC2086
    XXHASH_H=$(printf '#include <xxhash.h>\n' | $CC $CFLAGS_LIBS -E -x c - 2>/dev/null | grep -o '"[^"]*/xxhash\.h"' | sed -n 1p | tr -d '"')
    cp "$XXHASH_H" build/xxhash.h
    {
        say "# $key"
        for name in MULTIARCH CFLAGS_LIBS LDLIBS LDLIBS_TEST; do printf '%s=%q\n' "$name" "${!name}"; done
    } >build/config
}

# ---- missing packages ----------------------------------------------------------------------------

APT="apt-get install -y --no-upgrade --no-install-recommends"

# "name download-size" of each archive that installing $* would bring.
apt_archives() {
    apt-get install --print-uris -qq -y --no-upgrade --no-install-recommends "$@" 2>/dev/null |
        awk '{ sub(/_.*/, "", $2); printf "  %-28s %8.1f kB\n", $2, $3 / 1000; s += $3 }
             END { printf "  %-28s %8.1f kB to download\n", "all of it", s / 1000 }'
}

# Packages already here keep their version: an archive whose dependencies would pull one up is refused.
apt_upgrades() {
    apt-get install -s -y --no-upgrade --no-install-recommends "$@" 2>/dev/null | awk '/^Inst [^ ]+ \[/ { printf "%s ", $2 }'
}

# A -dev package must match its library (libc6-dev, libpcre2-dev), which may be older here than the newest on offer: then
# the version of what is installed is asked for.
apt_pin() {
    local p up v
    for p in "$@"; do
        for up in $(apt_upgrades "$p"); do
            v=$(dpkg-query -W -f '${Version}' "$up" 2>/dev/null || true)
            if apt-get install -s -y --no-upgrade --no-install-recommends "$p=$v" >/dev/null 2>&1 &&
                [ -z "$(apt_upgrades "$p=$v")" ]; then
                p=$p=$v
                break
            fi
        done
        printf '%s ' "$p"
    done
}

as_root() { # prints the prefix that makes a command root's, or fails
    if [ "$(id -u)" = 0 ]; then return 0; fi
    command -v sudo >/dev/null 2>&1 || return 1
    if [ -t 0 ]; then printf sudo; elif sudo -n true 2>/dev/null; then printf 'sudo -n'; else return 1; fi
}

no_install() {
    cat >&2 <<END
build.sh: these packages are missing: $*
  as root:       $APT $*
  without root:  ./build.sh gather DIR      (unpacks them into DIR and builds against it)
  elsewhere:     MG_PREFIX=DIR, CPATH and LIBRARY_PATH, or pkg-config can name libraries that are already there
END
    exit 3
}

install() { # packages
    local root list up answer
    command -v apt-get >/dev/null 2>&1 || no_install "$@"
    root=$(as_root) || no_install "$@"
    if ! apt-get install -s --no-install-recommends "$@" >/dev/null 2>&1; then
        say "build.sh: no package list here names them; asking the archive (apt-get update)"
        $root apt-get update -qq || no_install "$@"
    fi
    read -r -a list <<<"$(apt_pin "$@")"
    up=$(apt_upgrades "${list[@]}")
    [ -z "$up" ] || {
        say "build.sh: installing would upgrade $up; no package is ever upgraded here: unpacking what is missing into build/packages"
        gather build/packages
        return
    }
    say "build.sh: missing packages: $*"
    apt_archives "${list[@]}"
    if [ -t 0 ] && [ -z "$YES" ]; then
        read -r -p "Install them with ${root:+$root }apt-get? [Y/n] " answer
        case ${answer:-y} in [yY]*) ;; *) no_install "${list[@]}" ;; esac
    fi
    say "installing (apt's own words are in build/apt.log)"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $root $APT -qq "${list[@]}" >build/apt.log 2>&1 || {
        tail -5 build/apt.log >&2
        no_install "${list[@]}"
    }
}

need_base() {
    configure
    [ -n "$MISSING" ] || return 0
    # shellcheck disable=SC2086
    install $MISSING
    rm -f build/config
    configure
    [ -z "$MISSING" ] || die 3 "still missing after installing: $MISSING (build/probe.log has the compiler's words)"
}

# gather DIR: what is missing is downloaded and unpacked, nothing is installed, no root.
verb_gather() {
    [ $# = 1 ] || die 2 "usage: ./build.sh gather DIR"
    mkdir -p "$1" build
    configure
    gather "$1"
    verb_build
    [ ! -x "$1/bin/cc" ] || say "megagen finds the C compiler there with: export PATH=\"$(cd "$1" && pwd)/bin:\$PATH\""
}

gather() {
    local dir debs p
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    if [ -n "$MISSING" ]; then
        # shellcheck disable=SC2086
        command -v apt-get >/dev/null 2>&1 || no_install $MISSING
        local -a opt=()
        # shellcheck disable=SC2086
        if ! apt-get install -s --no-install-recommends $MISSING >/dev/null 2>&1; then
            say "no package list here names them; fetching the lists into $dir/apt"
            mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial"
            opt=(-o "Dir::State::Lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache")
            apt-get "${opt[@]}" update -qq || die 3 "the package lists could not be fetched"
        fi
        # shellcheck disable=SC2086
        debs=$(apt-get "${opt[@]}" install -s --no-install-recommends $MISSING 2>/dev/null | awk '/^Inst/ { print $2 }')
        [ -n "$debs" ] || die 3 "apt-get knows no archive of: $MISSING"
        mkdir -p "$dir/archives"
        say "gathering into $dir: $(echo $debs)"
        (cd "$dir/archives" && for p in $debs; do compgen -G "${p}_*.deb" >/dev/null || apt-get "${opt[@]}" download -qq "$p"; done) ||
            die 3 "apt-get download failed"
        for p in "$dir"/archives/*.deb; do dpkg -x "$p" "$dir"; done
        gather_cc "$dir"
        ln -sfn "$dir" build/gathered
        rm -f build/config
        configure
        [ -z "$MISSING" ] || die 3 "gathered, but still missing: $MISSING (build/probe.log has the compiler's words)"
    fi
}

# A compiler that was unpacked rather than installed has to be told where its parts are.
gather_cc() {
    local dir=$1 gcc
    for gcc in "$dir"/usr/bin/gcc-[0-9]* "$dir"/usr/bin/*-gcc-[0-9]*; do break; done
    [ -n "${gcc:-}" ] && [ -x "$gcc" ] || return 0
    mkdir -p "$dir/bin"
    local m=${MULTIARCH:-$(uname -m)-linux-gnu}
    # Linker scripts name the half of libc that belongs to the headers by an absolute path.
    { grep -lsI 'GNU ld script' "$dir/usr/lib/$m"/*.so || true; } | while IFS= read -r f; do
        sed -i "s|/usr/lib/$m/\\(lib[a-z_]*\\.a\\)|\\1|g" "$f"
    done
    cat >"$dir/bin/cc" <<END
#!/bin/sh
export LD_LIBRARY_PATH="$dir/usr/lib/$m\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" PATH="$dir/usr/bin:\$PATH"
exec "$gcc" -B"$dir/usr/bin" -B"$dir/usr/lib/$m" -idirafter "$dir/usr/include/$m" -idirafter "$dir/usr/include" -L"$dir/usr/lib/$m" "\$@"
END
    printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s"\nexec "%s" "$@"\n' "$dir/usr/lib/$m" "$dir/usr/bin/ar" >"$dir/bin/ar"
    chmod +x "$dir/bin/cc" "$dir/bin/ar"
}

# ---- compile -------------------------------------------------------------------------------------

hash_of() { sha256sum | cut -c1-32; }

# object SRC OUT FLAGS...: compile through the cache. HEADERS is the hash of every header a source of ours may include.
object() {
    local src=$1 out=$2 key tmp
    shift 2
    key=$({ say "$CC_ID $* $src $HEADERS"; cat "$src"; } | hash_of)
    mkdir -p "$(dirname "$out")" "$MG_CACHE/obj"
    if [ ! -f "$MG_CACHE/obj/$key.o" ]; then
        tmp=$MG_CACHE/obj/$key.$$.$RANDOM
        [ -n "${QUIET:-}" ] || say "cc  $src${TAG:+  ($TAG)}"
        $CC "$@" -ffile-prefix-map="$PWD"=. -c "$src" -o "$tmp" || { rm -f "$tmp"; return 1; }
        mv "$tmp" "$MG_CACHE/obj/$key.o"
    fi
    cp "$MG_CACHE/obj/$key.o" "$out"
}

# Runs its arguments in the background, MG_JOBS at a time; wait_all is false if one failed.
job() {
    while [ "$(jobs -rp | wc -l)" -ge "$MG_JOBS" ]; do wait -n || true; done
    { "$@" || : >build/failed; } &
}
wait_all() {
    wait
    [ ! -e build/failed ]
}

isa_levels() { # name:flags, best last; kernels/cpu/micro*.c is compiled once for each with -DMG_ISA=name
    case ${MULTIARCH%%-*} in
    x86_64) say "generic:-march=x86-64 avx2:-march=haswell avx512:-march=skylake-avx512" ;;
    *) say "generic:" ;;
    esac
}

assets() {
    local f
    for f in generator/lib/*.lua generator/rules/*.lua templates/*.lt kernels/cpu/*.[ch] runtime/*.[ch] specs/*.lua specs/lib/*.lua; do
        say "$f"
    done
}

# One object that holds the text of every asset, and asset_table(), which names them. It is linked as an object: the reference
# to it is weak and would pull nothing out of an archive.
embed() { # output folder
    local out=$1 f n=0 list
    list="$(assets) build/xxhash.h" # a trainer hashes with xxHash's header alone, which goes into its folder
    {
        say '/* Written by build.sh. */'
        say '#include "megagen.h"'
        say '#define FILE_TEXT(id, path) __asm__(".section .rodata\n.balign 16\n" #id ":\n.incbin \"" path "\"\n" #id "_end:\n.byte 0\n.previous\n"); \'
        say '    extern const char id[], id##_end[];'
        for f in $list; do
            say "FILE_TEXT(asset_$n, \"$f\")"
            n=$((n + 1))
        done
        say 'const Asset *asset_table(void);'
        say 'const Asset *asset_table(void)'
        say '{'
        say '    static Asset t[] = {'
        n=0
        for f in $list; do
            say "        {\"${f/#build/runtime}\", asset_$n, 0},"
            n=$((n + 1))
        done
        say '        {NULL, NULL, 0}};'
        n=0
        for f in $list; do
            say "    t[$n].n = (u64)(asset_${n}_end - asset_$n);"
            n=$((n + 1))
        done
        say '    return t;'
        say '}'
    } >"$out/assets.c"
    # shellcheck disable=SC2046,SC2086
    TEXTS=$(cat $list 2>/dev/null | hash_of)
    HEADERS="$HEADERS $TEXTS" object "$out/assets.c" "$out/assets.o" $STD -O1
}

# variant NAME: what the flags of each build are. Only `release` goes to the top level.
variant_flags() {
    case $1 in
    release) say "-O2 -g" ;;
    asan) say "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" ;;
    tsan) say "-O1 -g -fsanitize=thread" ;;
    hostile) say "-O1 -g -DMG_HOSTILE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer" ;;
    strict) say "-O2 -Werror" ;;
    *) die 2 "no such variant: $1" ;;
    esac
}

# Builds OUT/libgen.a (generator without main), OUT/libmg.a (runtime and micro kernels) and OUT/megagen.
build_into() { # variant, output folder
    local out=$2 opt f level gen=() run=() main=
    opt=$(variant_flags "$1")
    TAG=$1
    CC_ID=$($CC --version | sed -n 1p)
    HEADERS=$(cat generator/*.h runtime/*.h kernels/cpu/*.h 2>/dev/null | hash_of)
    mkdir -p "$out"
    rm -f build/failed
    # shellcheck disable=SC2086
    {
        for f in generator/*.c; do
            job object "$f" "$out/$f.o" $STD $CFLAGS_LIBS $WARN $opt
            if [ "$f" = generator/main.c ]; then main=$out/$f.o; else gen+=("$out/$f.o"); fi
        done
        for f in runtime/*.c; do
            job object "$f" "$out/$f.o" $STD $CFLAGS_LIBS $WARN $opt -ffp-contract=off
            run+=("$out/$f.o")
        done
        for f in kernels/cpu/micro*.c; do
            for level in $(isa_levels); do
                job object "$f" "$out/$f.${level%%:*}.o" $STD $WARN $opt -ffp-contract=fast ${level#*:} -DMG_ISA="${level%%:*}"
                run+=("$out/$f.${level%%:*}.o")
            done
        done
        job embed "$out"
    }
    wait_all || die 4 "the build failed"
    rm -f "$out"/lib*.a
    "$AR" rcsD "$out/libgen.a" "${gen[@]}"
    [ ${#run[@]} = 0 ] || "$AR" rcsD "$out/libmg.a" "${run[@]}"
    [ -z "${NO_LINK:-}" ] || return 0
    # The whole runtime is linked in and exported: objects that are compiled just in time find it there.
    # shellcheck disable=SC2086
    $CC $opt -rdynamic -o "$out/megagen.new" "$main" "$out/assets.o" "$out/libgen.a" -Wl,--whole-archive "$out/libmg.a" -Wl,--no-whole-archive \
        -Wl,--as-needed $LDLIBS -lm -ldl -pthread || die 4 "linking megagen failed"
    mv "$out/megagen.new" "$out/megagen"
}

lock() { # one build of a tree at a time
    mkdir -p build
    exec 8>build/lock
    command -v flock >/dev/null 2>&1 && flock 8
    return 0
}

# ---- verbs ---------------------------------------------------------------------------------------

verb_build() {
    need_base
    lock
    build_into release build/release
    cmp -s build/release/libmg.a build/libmg.a || cp build/release/libmg.a build/libmg.a
    cmp -s build/release/megagen megagen || { cp build/release/megagen megagen.new && mv megagen.new megagen; }
    exec 8>&-
}

verb_variant() { # NAME [compiler]: for the tests
    [ $# -ge 1 ] || die 2 "usage: ./build.sh variant NAME [cc]"
    [ $# -lt 2 ] || export CC=$2
    need_base
    lock
    build_into "$1" "build/$1${2:+-$2}"
    exec 8>&-
}

# tests/unit_X.c to build/asan/unit_X; what the compiler says goes to build/asan/unit_X.log. A test may define a function of ours
# anew: its own comes first (muldefs).
unit() {
    local name
    name=$(basename "$1" .c)
    rm -f "build/asan/$name"
    # shellcheck disable=SC2086
    QUIET=1 object "$1" "build/asan/$name.o" $STD -Itests $CFLAGS_LIBS $WARN $OPT >"build/asan/$name.log" 2>&1 &&
        $CC $OPT -rdynamic -Wl,-z,muldefs -o "build/asan/$name" "build/asan/$name.o" build/asan/assets.o build/asan/libgen.a build/asan/libmg.a \
            $LDLIBS_TEST $LDLIBS -lm -ldl -pthread >>"build/asan/$name.log" 2>&1 || true
}

verb_units() { # [NAME...]: the unit tests whose path contains one of the names, against the asan variant
    local f n
    NO_LINK=1 verb_variant asan # a unit test needs the parts, not the tool
    lock
    OPT=$(variant_flags asan)
    HEADERS=$(cat generator/*.h runtime/*.h kernels/cpu/*.h tests/*.h 2>/dev/null | hash_of)
    for f in tests/unit_*.c; do
        for n in "${@:-unit}"; do case $f in *"$n"*) job unit "$f" && break ;; esac done
    done
    wait
    exec 8>&-
}

verb_flags() { # what a test needs to compile against the tree, as shell assignments
    need_base
    printf 'CC=%q AR=%q\nSTD=%q\nWARN=%q\nCFLAGS_LIBS=%q\nLDLIBS=%q\nLDLIBS_TEST=%q\n' "$CC" "$AR" "$STD" "$WARN" "$CFLAGS_LIBS" "$LDLIBS" "$LDLIBS_TEST"
}

# CC is a list of words and its path is relative when it is a gathered one: what runs in other folders finds it on PATH.
export_cc() {
    case $CC in
    build/gathered/*)
        PATH=$(readlink build/gathered)/bin:$PATH
        CC=cc
        ;;
    esac
    export PATH CC
}

verb_demo() {
    verb_build
    export_cc
    exec bash examples/demo.sh "$@"
}

verb_test() {
    verb_build
    export_cc
    exec bash tests/run.sh "$@"
}

verb_fmt() {
    command -v clang-format >/dev/null 2>&1 || die 3 "clang-format is missing: $APT clang-format"
    clang-format -i generator/*.[ch] runtime/*.[ch] kernels/cpu/*.[ch] tests/*.[ch] tests/*/*.[ch] examples/*.c
}

verb_clean() { rm -rf build out megagen; }

verb_help() {
    cat <<'END'
usage: ./build.sh [-y] [VERB]

  (none), build      ./megagen and build/libmg.a
  demo               build, fetch a text, train specs/tiny.lua on it, evaluate, print samples
  test               every test; last line: N passed, N failed[, N skipped]
  test quick         the tests of a commit, under 90 s
  test NAME...       the tests whose path contains NAME
  test peers         the comparisons with PyTorch (skipped, with the reason, where it is not installed)
  fmt                format the C files (clang-format)
  gather DIR         no root: unpack the missing packages into DIR and build against it
  variant NAME [CC]  build/NAME: asan, tsan, hostile, strict; for the tests
  units [NAME...]    build/asan/unit_*: the unit tests
  flags              the compiler and flags in use, as shell assignments
  clean              remove build/, out/ and ./megagen; the cache of objects stays
  help               this text

  -y                 install missing packages without asking (also MG_YES=1)

environment: CC AR; MG_PREFIX (a prefix with include/ and lib/); CPATH LIBRARY_PATH PKG_CONFIG_PATH;
MG_CACHE (objects, default ~/.cache/megagen); MG_JOBS (compilers at a time, default 2)
exit codes: 0 done, 1 a test failed, 2 usage, 3 something is missing on this machine, 4 the build failed
END
}

while [ $# -gt 0 ]; do
    case $1 in
    -y) YES=1 && shift ;;
    -h | --help) set -- help ;;
    *) break ;;
    esac
done
verb=${1:-build}
[ $# = 0 ] || shift
case $verb in
build | demo | test | fmt | gather | variant | units | flags | clean | help) "verb_$verb" "$@" ;;
*) die 2 "unknown verb '$verb'; see ./build.sh help" ;;
esac
