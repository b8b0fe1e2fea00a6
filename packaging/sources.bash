# What packaging/rpm/build and packaging/debian/build share: the tree's version, and the sources in a tarball. Who sources
# this sets working_tree to yes or no.
# shellcheck shell=bash

repository=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/..")
program=$(realpath --relative-to="$repository" "$0")

# die MESSAGE: something that could not be done. usage_error MESSAGE: something that makes no sense.
die() { echo "$program: $*" >&2; exit 1; }
usage_error() { echo "$program: $*; see --help" >&2; exit 2; }

# plain_path PATH: whether rpm's macros and make's words would leave such a path whole.
plain_path() { [[ $1 =~ ^[A-Za-z0-9._/+-]+$ ]]; }

is_checkout() { [[ $(git -C "$repository" rev-parse --show-toplevel 2>/dev/null) == "$repository" ]]; }

# of_last_commit: whether the last commit is packed, and not the tree as it is.
of_last_commit() { is_checkout && [[ ${working_tree:?} == no ]]; }

# tree_version: of what is packed.
tree_version() {
  local version
  if of_last_commit; then
    version=$(git -C "$repository" show HEAD:VERSION)
  else
    version=$(<"$repository/VERSION")
  fi
  [[ $version =~ ^[0-9]+(\.[0-9]+)*$ ]] || die "VERSION holds '$version'; it must be numbers with dots between them"
  echo "$version"
}

# pack TARBALL PREFIX: the sources below PREFIX/ in the tarball.
pack() {
  if ! is_checkout; then
    (cd "$repository" && find . -path ./build -prune -o -path ./runs -prune -o ! -type d -print0) | pack_files "$@"
  elif of_last_commit; then
    git -C "$repository" archive --format=tar --prefix="$2/" HEAD | gzip -n >"$1"
  else
    # What is deleted but not committed as such is listed as well, and is not there.
    git -C "$repository" ls-files -z --cached --others --exclude-standard |
      (cd "$repository" && while IFS= read -r -d '' file; do
        if [[ -e $file || -L $file ]]; then printf '%s\0' "$file"; fi
      done) | pack_files "$@"
  fi
}

# pack_files TARBALL PREFIX <NUL-SEPARATED-NAMES
pack_files() {
  LC_ALL=C sort -z |
    tar -C "$repository" --null --no-recursion --files-from=- --owner=0 --group=0 --numeric-owner \
      --mode='u+rwX,go+rX,go-w' --transform="flags=r;s|^\(\./\)\?|$2/|" -cf - | gzip -n >"$1"
}
