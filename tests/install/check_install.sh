#!/bin/sh
# check_install.sh <cmake> <build folder> <libdir> <c++> <cc> <checkpoint>
# Installs a build into a prefix inside it, then builds and runs programs that know nothing but that prefix: by
# find_package, and by pkg-config. Silent unless something fails.
set -eu
cmake=$1 build=$2 libdir=$3 cxx=$4 cc=$5 checkpoint=$6
here=$(cd "$(dirname "$0")" && pwd)
work=$build/install-test
rm -rf "$work"
mkdir -p "$work"
prefix=$work/prefix

quietly() { "$@" >"$work/log" 2>&1 || { echo "failed: $*"; cat "$work/log"; exit 1; }; }

quietly "$cmake" --install "$build" --prefix "$prefix"
quietly "$prefix/bin/megamoe" --help
for header in "$here"/../../include/megamoe/*; do
  cmp "$header" "$prefix/include/megamoe/$(basename "$header")"
done

quietly "$cmake" -S "$here/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc"
quietly "$cmake" --build "$work/consumer"
quietly "$work/consumer/consumer_cpp" "$checkpoint"
quietly "$work/consumer/consumer_c" "$checkpoint"

# Moved, as a package manager does between building and installing.
mv "$prefix" "$work/moved"
export PKG_CONFIG_PATH="$work/moved/$libdir/pkgconfig"
export LD_LIBRARY_PATH="$work/moved/$libdir"
flags=$(pkg-config --cflags --static --libs megamoe)
# shellcheck disable=SC2086
quietly "$cxx" -std=c++20 "$here/consumer/consumer.cpp" -o "$work/by_pkg_config_cpp" $flags
# shellcheck disable=SC2086
quietly "$cc" -std=c11 "$here/consumer/consumer.c" -o "$work/by_pkg_config_c" $flags
quietly "$work/by_pkg_config_cpp" "$checkpoint"
quietly "$work/by_pkg_config_c" "$checkpoint"
