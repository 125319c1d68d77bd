#!/bin/bash
# Build etcd, kube-apiserver, kube-controller-manager and kube-scheduler from Debian 12's packages:
#   tests/k8s/lab/build.sh FOLDER, then KUBEBUILDER_ASSETS=FOLDER/assets make test-k8s
# It takes 5 minutes on 2 free cores and 4 GB, and needs apt, but neither root nor Go.
set -euo pipefail

WORK=$(realpath -m "$1")
VERSION=1.20.2
ARCHIVE=kubernetes_1.20.5+really$VERSION.orig.tar.gz
SHA256=b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc
SOURCE=$WORK/gopath/src/k8s.io/kubernetes

download() {
    mkdir -p "$WORK/packages" && cd "$WORK/packages"
    apt-get download -qq golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server
    for package in *.deb; do dpkg -x "$package" "$WORK/root"; done
    if [ ! -f "$ARCHIVE" ]; then
        # apt with a list of its own: this machine's mirror, for source packages.
        mkdir -p "$WORK/lists/partial"
        sed 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$WORK/debian.sources"
        local options=(-o "Dir::Etc::sourcelist=$WORK/debian.sources" -o Dir::Etc::sourceparts=-
                       -o "Dir::State::Lists=$WORK/lists")
        apt-get "${options[@]}" -qq update
        apt-get "${options[@]}" -qq --download-only source kubernetes
    fi
    echo "$SHA256  $ARCHIVE" | sha256sum --check --quiet
}

unpack() {
    rm -rf "$SOURCE" && mkdir -p "$SOURCE"
    tar --extract --gzip --file "$WORK/packages/$ARCHIVE" --directory "$SOURCE" --strip-components=1
    cd "$SOURCE"
    # The vendored reflect2 1.0.1 crashes when it is built with Go 1.18 or newer.
    local reflect2=github.com/modern-go/reflect2
    rm -rf "vendor/$reflect2"
    cp -r "$WORK/root/usr/share/gocode/src/$reflect2" "vendor/$reflect2"
    rm -f "vendor/$reflect2"/*_test.go
    # kr8s reads singularName, which the API server sends since Kubernetes 1.27.
    sed -i 's/^\(\t*\)apiResource.Kind = resourceKind$/&\n\1if !isSubresource {\n\1\tapiResource.SingularName = strings.ToLower(resourceKind)\n\1}/' \
        staging/src/k8s.io/apiserver/pkg/endpoints/installer.go
}

build() {
    cd "$SOURCE"
    export GOROOT=$WORK/root/usr/lib/go-1.19 GOPATH=$WORK/gopath GOCACHE=${GOCACHE:-$WORK/cache}
    export GO111MODULE=off CGO_ENABLED=0 GOFLAGS= PATH=$WORK/root/usr/lib/go-1.19/bin:$PATH
    # The archive lacks one generated file: the OpenAPI definitions of all types that are marked for it.
    go build -o "$WORK/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
    local packages
    packages=$(grep -rlE --include='*.go' '^// \+k8s:openapi-gen=' pkg staging/src/k8s.io \
        | xargs -n 1 dirname | sort -u | grep -vE '_examples|sample-|code-generator/' \
        | sed -e 's#^staging/src/#vendor/#' -e 's#^#k8s.io/kubernetes/#' | paste -s -d,)
    "$WORK/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi \
        -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt \
        -r "$WORK/violations.txt"
    local flags="-s -w" package
    for package in component-base/version client-go/pkg/version; do
        package=k8s.io/kubernetes/vendor/k8s.io/$package
        flags+=" -X $package.gitVersion=v$VERSION -X $package.gitMajor=1 -X $package.gitMinor=20"
    done
    mkdir -p "$WORK/assets"
    local program
    for program in kube-apiserver kube-controller-manager kube-scheduler; do
        # Without the code of cloud providers, which no test uses: a seventh less to compile.
        nice go build -p 2 -tags providerless -ldflags "$flags" -o "$WORK/assets/$program" "./cmd/$program"
    done
    cp "$WORK/root/usr/bin/etcd" "$WORK/assets/"
}

download
unpack
build
ls -l "$WORK/assets"
