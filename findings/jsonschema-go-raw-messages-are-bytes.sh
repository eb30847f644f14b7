#!/usr/bin/env bash
# Google's jsonschema-go 0.4.3 makes a schema of a Go type by reflection. A field of `json.RawMessage`, which encoding/json writes as the JSON that it
# holds, gets the schema of a list of bytes: integers from 0 to 255. So a type with such a field, the usual way to keep the arguments of a tool call
# unread, has a schema that refuses what the type is written as, unless the JSON is null or such a list. A model whose output must fit it can only
# write lists of numbers.
# Seen: 2026-11-28, Go 1.26.
set -euo pipefail
folder=$(mktemp -d)
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
cd "$folder"
export GOPATH="$folder/go" GOFLAGS=-mod=mod GOTOOLCHAIN=local
cat > main.go << 'EOF'
package main

import (
	"encoding/json"
	"fmt"

	"github.com/google/jsonschema-go/jsonschema"
)

type call struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	schema, err := jsonschema.For[call](nil)
	check(err)
	resolved, err := schema.Resolve(nil)
	check(err)
	field, err := json.Marshal(schema.Properties["arguments"])
	check(err)
	fmt.Println(string(field))
	for _, arguments := range []string{`{"a": 1}`, `"text"`, `1`, `[1, 2]`, `null`} {
		written, err := json.Marshal(call{"add", json.RawMessage(arguments)})
		check(err)
		var value any
		check(json.Unmarshal(written, &value))
		fmt.Println(arguments, resolved.Validate(value) == nil)
	}
}
EOF
go mod init example.org/finding 2> /dev/null
go get github.com/google/jsonschema-go@v0.4.3 2> /dev/null
found=$(go run .)
echo "$found"
[ "$found" = '{"type":["null","array"],"items":{"type":"integer","minimum":0,"maximum":255}}
{"a": 1} false
"text" false
1 false
[1, 2] true
null true' ]
