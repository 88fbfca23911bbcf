#!/bin/sh
# Builds the cluster binary once and keeps it by a hash of its sources: prints its path.
# K8S=1.34|1.35|1.36 picks the minor (1.36 unless told otherwise). Progress goes to stderr.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
store=${CLUSTER_STORE:-$here/../../target/cluster}
minor=${K8S:-1.36}
kept=3 # builds: one per minor

die() { echo "cluster: $*" >&2; exit 1; }

case $minor in
1.36) module=go.mod tags= ;;
1.34|1.35) module=go.$minor.mod tags=k8s$(echo "$minor" | tr -d .) ;;
*) die "K8S is 1.34, 1.35 or 1.36, not $minor" ;;
esac

command -v go >/dev/null || die "Go is missing: install Go $(awk '$1 == "go" {print $2}' "$here/go.mod") or newer and put it into PATH"
export GOTOOLCHAIN=local
have=$(go env GOVERSION | sed 's/^go//')
want=$(awk '$1 == "go" {print $2}' "$here/go.mod")
[ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ] ||
	die "Go $have is too old: install Go $want or newer and put it first into PATH"

cd "$here"
hash=$({ echo "$minor $have"; find . \( -name '*.go' ! -name '*_test.go' \) -o -name '*.mod' -o -name '*.sum' -o -name build.sh |
	LC_ALL=C sort | xargs sha256sum; } | sha256sum | cut -c1-16)
mkdir -p "$store"
store=$(CDPATH= cd -- "$store" && pwd)
built=$store/$hash
if [ -x "$built/cluster" ]; then
	touch "$built/cluster" # in use: see the end
	echo "$built/cluster"
	exit 0
fi

# One build at a time: a second one waits here and then finds the first one's result.
exec 7>"$store/lock"
flock 7
if [ -x "$built/cluster" ]; then
	echo "$built/cluster"
	exit 0
fi
free=$(df -Pm "$store" | awk 'NR == 2 {print $4}')
[ "$free" -ge 6144 ] || die "only $free MB are free in $store and a first build needs 6144: free some"

rm -rf "$store"/build.* # of a build that was killed

begun=$(date +%s)
version=$(awk '$1 == "k8s.io/kubernetes" {print $2}' "$module")
helm=$(awk '$1 == "helm.sh/helm/v3" {print $2}' "$module")
echo "cluster: building Kubernetes $version; the first time takes up to 12 minutes on 2 cores" >&2
packages=$(go list -modfile="$module" -tags="$tags" -deps . 2>/dev/null | wc -l)
scratch=$(mktemp -d "$store/build.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

# Counts the packages that the compiler finishes; everything else that it says is shown as it is.
progress() {
	awk -v all="$packages" -v begun="$begun" '
		/^go: downloading/ { if (++got % 50 == 0) print "cluster: " got " modules downloaded"; next }
		/^[A-Za-z0-9._\/~-]+$/ {
			if (++done % 100 == 0) {
				"date +%s" | getline now; close("date +%s")
				print "cluster: " done " of at most " all " packages compiled, " now - begun " s"
			}
			next
		}
		{ print }' >&2
}

build() { # OUTPUT LINKER-FLAGS PACKAGE
	{
		go build -v -modfile="$module" -tags="$tags" -ldflags "-s -w $2" -o "$scratch/$1" "$3" 2>&1 7>&- ||
			touch "$scratch/failed"
	} | progress
	[ ! -e "$scratch/failed" ] || die "the build failed, for the reasons above"
}

build cluster "-X k8s.io/component-base/version.gitVersion=$version" .
build helm "-X helm.sh/helm/v3/internal/version.version=$helm" helm.sh/helm/v3/cmd/helm
CGO_ENABLED=0 build app "" ./check/app
seconds=$(($(date +%s) - begun))
echo "$seconds" >"$scratch/build-seconds"
echo "$here" >"$scratch/sources"
chmod 755 "$scratch"
mv "$scratch" "$built"
echo "cluster: built in $seconds s" >&2
# The builds that were used last stay.
ls -1t "$store"/*/cluster | tail -n +$((kept + 1)) | while read -r old; do rm -rf "${old%/cluster}"; done
echo "$built/cluster"
