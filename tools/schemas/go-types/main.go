// What library.mjs says, for google/jsonschema-go: `go run .` writes the cases, `go run . judge` judges outputs. An output must be valid for the
// library, and Go must read it into the type.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

type testCase struct {
	Library string             `json:"library"`
	Name    string             `json:"name"`
	Schema  *jsonschema.Schema `json:"schema"`
	Valid   []json.RawMessage  `json:"valid"`
	Invalid []json.RawMessage  `json:"invalid"`
	accepts func(string) error
}

var cases []*testCase

// change: what a program sets that Go's types cannot say.
func add[T any](name string, change func(*jsonschema.Schema), valid ...string) {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, "unrepresentable", name, err)
		return
	}
	if change != nil {
		change(schema)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, "unresolved", name, err)
		return
	}
	accepts := func(text string) error {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return err
		}
		if err := resolved.Validate(value); err != nil {
			return err
		}
		var typed T
		return json.Unmarshal([]byte(text), &typed)
	}
	found := &testCase{Library: "go", Name: name, Schema: schema, Valid: []json.RawMessage{}, Invalid: []json.RawMessage{}, accepts: accepts}
	for _, text := range valid {
		if err := accepts(text); err != nil {
			fmt.Fprintln(os.Stderr, "go refuses", name, text, err)
		}
		found.Valid = append(found.Valid, json.RawMessage(text))
	}
	cases = append(cases, found)
}

type Address struct {
	Street string `json:"street" jsonschema:"the street and the number"`
	City   string `json:"city"`
	Zip    string `json:"zip,omitempty"`
}
type Person struct {
	Name    string   `json:"name"`
	Age     int      `json:"age"`
	Email   *string  `json:"email"`
	Home    *Address `json:"home,omitempty"`
	Tags    []string `json:"tags"`
	private int
}
type Base struct {
	ID uint64 `json:"id"`
}
type Event struct {
	Base
	At   time.Time      `json:"at"`
	Data map[string]any `json:"data"`
}
type Unit string
type Weather struct {
	City string `json:"city" jsonschema:"the city"`
	Unit Unit   `json:"unit,omitempty"`
	Days uint8  `json:"days,omitzero"`
}
type Matrix struct {
	Rows [2][3]float64 `json:"rows"`
}
type Named struct {
	A    int `json:"-"`
	B    int
	C    string `json:"the name"`
	D    bool   `json:",omitempty"`
	Text string `json:"ünïcode"`
}
type Raw struct {
	Value json.RawMessage `json:"value"`
	Any   any             `json:"any"`
}
type Numbers struct {
	A int8    `json:"a"`
	B int16   `json:"b"`
	C int32   `json:"c"`
	D int64   `json:"d"`
	E uint16  `json:"e"`
	F uint32  `json:"f"`
	G float32 `json:"g"`
}

func number(value float64) *float64 { return &value }
func count(value int) *int          { return &value }

func main() {
	type object = jsonschema.Schema
	add[string]("string", nil, `"a"`)
	add[bool]("bool", nil, `true`)
	add[int]("int", nil, `-5`)
	add[int8]("int8", nil, `-128`)
	add[uint8]("uint8", nil, `255`)
	add[int32]("int32", nil, `2147483647`)
	add[uint]("uint", nil, `0`)
	add[float64]("float64", nil, `1.5`)
	add[*int]("pointer", nil, `null`, `3`)
	add[[]string]("slice", nil, `["a", "b"]`)
	add[[3]int]("array", nil, `[1, 2, 3]`)
	add[map[string]int]("map", nil, `{"a": 1}`)
	add[map[string][]bool]("map of slices", nil, `{"a": [true]}`)
	add[any]("any", nil, `{"a": [1, null]}`, `"x"`)
	add[time.Time]("time", nil, `"2024-05-01T12:00:00Z"`)
	add[big.Int]("big.Int", nil)
	add[Address]("struct", nil, `{"street": "Main 1", "city": "Rome"}`, `{"street": "a", "city": "b", "zip": "c"}`)
	add[Person]("nested", nil, `{"name": "Ada", "age": 36, "email": null, "tags": ["x"]}`,
		`{"name": "Ada", "age": 36, "email": "a@b.c", "home": {"street": "s", "city": "c"}, "tags": null}`)
	add[Event]("embedded", nil, `{"id": 1, "at": "2024-05-01T12:00:00Z", "data": {"a": 1}}`)
	add[Weather]("tool", nil, `{"city": "Rome"}`, `{"city": "Rome", "unit": "celsius", "days": 3}`)
	add[Weather]("tool with an enum", func(s *object) { s.Properties["unit"].Enum = []any{"celsius", "fahrenheit"} },
		`{"city": "Rome", "unit": "celsius"}`)
	add[Matrix]("matrix", nil, `{"rows": [[1, 2, 3], [4, 5, 6]]}`)
	add[Named]("names", nil, `{"B": 1, "the name": "x", "ünïcode": "y"}`)
	add[Raw]("raw", nil, `{"value": [1], "any": null}`)
	add[Numbers]("numbers", nil, `{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 1.5}`)
	add[[]Person]("slice of structs", nil, `[{"name": "a", "age": 1, "email": null, "tags": []}]`)
	add[map[string]Address]("map of structs", nil, `{"home": {"street": "s", "city": "c"}}`)
	add[struct{}]("empty struct", nil, `{}`)
	add[string]("pattern", func(s *object) { s.Pattern = "^[A-Z]{3}-[0-9]+$" }, `"ABC-12"`)
	add[string]("lengths", func(s *object) { s.MinLength, s.MaxLength = count(2), count(5) }, `"abc"`)
	add[float64]("bounds", func(s *object) { s.Minimum, s.ExclusiveMaximum = number(0), number(1) }, `0.25`)
	add[int]("multipleOf", func(s *object) { s.MultipleOf = number(5) }, `15`)
	add[[]int]("items", func(s *object) { s.MinItems, s.MaxItems = count(1), count(3) }, `[1, 2]`)
	add[map[string]int]("names of a map", func(s *object) { s.PropertyNames = &object{Pattern: "^[a-z]+$"} }, `{"a": 1}`)

	if len(os.Args) < 2 {
		for _, found := range cases {
			text, err := json.Marshal(found)
			if err != nil {
				panic(err)
			}
			fmt.Println(string(text))
		}
		return
	}
	byName := map[string]*testCase{}
	for _, found := range cases {
		byName[found.Name] = found
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		var given struct {
			Name    string   `json:"name"`
			Outputs []string `json:"outputs"`
		}
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		wrong := []string{}
		for _, output := range given.Outputs {
			if byName[given.Name].accepts(output) != nil {
				wrong = append(wrong, output)
			}
		}
		text, _ := json.Marshal(map[string]any{"name": given.Name, "wrong": wrong})
		fmt.Println(string(text))
	}
}
