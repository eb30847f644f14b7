#!/usr/bin/env bash
# A Go module's zip leaves out every folder named `vendor`, also one that has C++ headers and no Go packages. Ollama 0.17.4 keeps the headers of
# nlohmann/json below `llama/llama.cpp/vendor`. In the module of the proxy its C++ files include a header that the module does not have, so
# `go install github.com/ollama/ollama@v0.17.4` cannot build what a clone of the same version builds.
# Seen: 2026-11-28, Go 1.26.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export GOPATH="$folder/go" GOFLAGS=-mod=mod GOTOOLCHAIN=local
go mod init example.org/finding 2> /dev/null
module=$(go mod download -json github.com/ollama/ollama@v0.17.4 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
included=$(grep -rl --include='*.h' --include='*.cpp' 'nlohmann/json' "$module/llama" | wc -l)
headers=$(find "$module" -path '*nlohmann/json*.hpp' | wc -l)
vendor=$(find "$module" -type d -name vendor | wc -l)
echo "files that include nlohmann/json: $included; such headers: $headers; folders named vendor: $vendor"
[ "$included" -gt 0 ] && [ "$headers" = 0 ] && [ "$vendor" = 0 ]
