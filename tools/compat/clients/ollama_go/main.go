// Ollama's client for Go, which its own command uses. As features.py: prints a JSON line for each feature.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ollama/ollama/api"
)

type outcome struct {
	Feature string `json:"feature"`
	Works   bool   `json:"works"`
	Detail  string `json:"detail,omitempty"`
}

const question = "What is the weather in Rome?"
const person = `{
	"type": "object",
	"properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
	"required": ["name", "age"],
	"additionalProperties": false
}`

var (
	ctx      = context.Background()
	model    = setting("COMPAT_MODEL", "kvasir-demo")
	client   *api.Client
	whole    = false
	options  = map[string]any{"temperature": 0, "num_predict": 64}
	messages = []api.Message{{Role: "user", Content: question}}
)

func setting(name, otherwise string) string {
	if value, isSet := os.LookupEnv(name); isSet {
		return value
	}
	return otherwise
}

func check(isTrue bool, format string, values ...any) error {
	if isTrue {
		return nil
	}
	return fmt.Errorf(format, values...)
}

// The last answer, with the text and the calls of all.
func chat(request *api.ChatRequest) (last api.ChatResponse, err error) {
	var text strings.Builder
	var calls []api.ToolCall
	request.Model = model
	if request.Options == nil {
		request.Options = options
	}
	err = client.Chat(ctx, request, func(part api.ChatResponse) error {
		text.WriteString(part.Message.Content)
		calls = append(calls, part.Message.ToolCalls...)
		part.Logprobs = append(last.Logprobs, part.Logprobs...)
		last = part
		return nil
	})
	last.Message.Content, last.Message.ToolCalls = text.String(), calls
	return last, err
}

func generate(request *api.GenerateRequest) (text string, last api.GenerateResponse, err error) {
	request.Model = model
	err = client.Generate(ctx, request, func(part api.GenerateResponse) error {
		text += part.Response
		last = part
		return nil
	})
	return text, last, err
}

func plain() error {
	answer, err := chat(&api.ChatRequest{Messages: messages, Stream: &whole})
	if err != nil {
		return err
	}
	text, _, err := generate(&api.GenerateRequest{Prompt: "Once upon a time", Options: options})
	if err != nil {
		return err
	}
	isDone := answer.Message.Content != "" && text != "" && answer.EvalCount > 0 && answer.EvalDuration > 0
	return check(isDone, "not a whole answer: %+v", answer)
}

func stream() error {
	streamed, err := chat(&api.ChatRequest{Messages: messages})
	if err != nil {
		return err
	}
	answer, err := chat(&api.ChatRequest{Messages: messages, Stream: &whole})
	if err != nil {
		return err
	}
	return check(streamed.Message.Content == answer.Message.Content, "other texts")
}

func tools() error {
	properties := api.NewToolPropertiesMap()
	properties.Set("city", api.ToolProperty{Type: api.PropertyType{"string"}})
	function := api.ToolFunction{Name: "get_weather", Description: "The weather of a city."}
	function.Parameters = api.ToolFunctionParameters{Type: "object", Required: []string{"city"}, Properties: properties}
	// A tool without parameters has `"properties": null`.
	clock := api.Tool{Type: "function", Function: api.ToolFunction{Name: "get_time"}}
	given := api.Tools{{Type: "function", Function: function}, clock}
	answer, err := chat(&api.ChatRequest{Messages: messages, Tools: given})
	if err != nil {
		return err
	}
	_, callsTools := os.LookupEnv("COMPAT_CALLS")
	return check(len(answer.Message.ToolCalls) > 0 || !callsTools, "no call: %q", answer.Message.Content)
}

func jsonSchema() error {
	answer, err := chat(&api.ChatRequest{Messages: messages, Format: json.RawMessage(person)})
	if err != nil {
		return err
	}
	var found struct {
		Name *string
		Age  *int
	}
	err = json.Unmarshal([]byte(answer.Message.Content), &found)
	return errors.Join(err, check(found.Name != nil && found.Age != nil, "not a person: %q", answer.Message.Content))
}

func embeddings() error {
	answer, err := client.Embed(ctx, &api.EmbedRequest{Model: model, Input: []string{"a fox", "a mouse"}})
	if err != nil {
		return err
	}
	old, err := client.Embeddings(ctx, &api.EmbeddingRequest{Model: model, Prompt: "a fox"})
	if err != nil {
		return err
	}
	none, err := client.Embed(ctx, &api.EmbedRequest{Model: model, Input: ""})
	if err != nil {
		return err
	}
	areVectors := len(answer.Embeddings) == 2 && len(answer.Embeddings[0]) == len(old.Embedding) && len(none.Embeddings) == 0
	return check(areVectors, "not these vectors")
}

func models() error {
	listed, err := client.List(ctx)
	if err != nil {
		return err
	}
	isListed := slices.ContainsFunc(listed.Models, func(each api.ListModelResponse) bool {
		return strings.TrimSuffix(each.Model, ":latest") == model && each.Details.ParameterSize != "" && each.Details.QuantizationLevel != ""
	})
	shown, err := client.Show(ctx, &api.ShowRequest{Model: model})
	if err != nil {
		return err
	}
	running, err := client.ListRunning(ctx)
	if err != nil {
		return err
	}
	architecture, _ := shown.ModelInfo["general.architecture"].(string)
	length, _ := shown.ModelInfo[architecture+".context_length"].(float64)
	version, err := client.Version(ctx)
	var minor int
	fmt.Sscanf(version, "0.%d.", &minor)
	isKnown := isListed && len(running.Models) > 0 && length > 0 && shown.ModelInfo["general.parameter_count"] != nil && minor > 6
	return errors.Join(err, client.Heartbeat(ctx), check(isKnown, "not listed: %+v", listed))
}

func failures() error {
	_, err := chat(&api.ChatRequest{Messages: messages, Options: map[string]any{"temperature": "hot"}})
	var wrong api.StatusError
	if !errors.As(err, &wrong) || wrong.StatusCode != 400 || !strings.Contains(wrong.ErrorMessage, "temperature") {
		return fmt.Errorf("not the error of the field: %v", err)
	}
	for _, err := range []error{
		client.Generate(ctx, &api.GenerateRequest{Model: "no-such-model", Prompt: "x"}, func(api.GenerateResponse) error { return nil }),
		client.Delete(ctx, &api.DeleteRequest{Model: model}),
		client.Copy(ctx, &api.CopyRequest{Source: model, Destination: "other"}),
		client.Create(ctx, &api.CreateRequest{Model: "other", From: model}, func(api.ProgressResponse) error { return nil }),
		client.CreateBlob(ctx, "sha256:0", strings.NewReader("GGUF")),
	} {
		var refused api.StatusError
		if !errors.As(err, &refused) || refused.StatusCode < 400 || refused.StatusCode >= 500 || refused.ErrorMessage == "" {
			return fmt.Errorf("not an error with a text: %v", err)
		}
	}
	return nil
}

func load() error {
	_, loaded, err := generate(&api.GenerateRequest{})
	if err != nil {
		return err
	}
	_, unloaded, err := generate(&api.GenerateRequest{KeepAlive: &api.Duration{}})
	if err != nil {
		return err
	}
	again, err := chat(&api.ChatRequest{KeepAlive: &api.Duration{Duration: 5 * time.Minute}})
	isDone := loaded.DoneReason == "load" && unloaded.DoneReason == "unload" && again.DoneReason == "load"
	return errors.Join(err, check(isDone, "%s, %s, %s", loaded.DoneReason, unloaded.DoneReason, again.DoneReason))
}

func continues() error {
	begun := append(slices.Clone(messages), api.Message{Role: "assistant", Content: "The weather in Rome"})
	answer, err := chat(&api.ChatRequest{Messages: begun})
	return errors.Join(err, check(answer.Done && answer.DoneReason != "load", "no answer: %+v", answer))
}

func logprobs() error {
	answer, err := chat(&api.ChatRequest{Messages: messages, Logprobs: true, TopLogprobs: 2})
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, token := range answer.Logprobs {
		if len(token.TopLogprobs) != 2 || len(token.Bytes) == 0 || token.Logprob > 0 {
			return fmt.Errorf("not the logprob of a token: %+v", token)
		}
		text.WriteString(token.Token)
	}
	isText := strings.TrimSpace(text.String()) == strings.TrimSpace(answer.Message.Content)
	return check(isText, "tokens of %q for %q", text.String(), answer.Message.Content)
}

func pull() error {
	status := ""
	err := client.Pull(ctx, &api.PullRequest{Model: model}, func(part api.ProgressResponse) error {
		status = part.Status
		return nil
	})
	return errors.Join(err, check(status == "success", "ended with %q", status))
}

func main() {
	base, err := url.Parse(setting("COMPAT_URL", "http://127.0.0.1:8000"))
	if err != nil {
		panic(err)
	}
	client = api.NewClient(base, http.DefaultClient)
	features := []struct {
		name string
		run  func() error
	}{
		{"plain", plain}, {"stream", stream}, {"tools auto", tools}, {"json_schema", jsonSchema}, {"embeddings", embeddings},
		{"models", models}, {"errors", failures}, {"load", load}, {"continue", continues}, {"logprobs", logprobs}, {"pull", pull},
	}
	for _, feature := range features {
		outcome := outcome{Feature: feature.name, Works: true}
		if err := feature.run(); err != nil {
			outcome.Works, outcome.Detail = false, err.Error()
		}
		line, _ := json.Marshal(outcome)
		fmt.Println(string(line))
	}
}
