// The client of oapi-codegen.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"kvasir.test/clients/api"
)

func read(text string, into interface{}) {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		panic(err)
	}
}

func main() {
	client, err := api.NewClientWithResponses(os.Getenv("KVASIR_ORIGIN"))
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	var body api.PostV1ChatCompletionsJSONRequestBody
	read(`{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Once"}]}],"max_tokens":4,"temperature":0}`, &body)
	chat, err := client.PostV1ChatCompletionsWithResponse(ctx, body)
	if err != nil || chat.JSON200 == nil {
		panic(fmt.Sprint(err, string(chat.Body)))
	}
	var asked api.PostV1ResponsesJSONRequestBody
	read(`{"input":"Once","max_output_tokens":4,"temperature":0}`, &asked)
	response, err := client.PostV1ResponsesWithResponse(ctx, asked)
	if err != nil || response.JSON200 == nil {
		panic(fmt.Sprint(err, string(response.Body)))
	}
	var empty api.PostV1ChatCompletionsJSONRequestBody
	read(`{"messages":[]}`, &empty)
	wrong, err := client.PostV1ChatCompletionsWithResponse(ctx, empty)
	if err != nil || wrong.JSON4XX == nil {
		panic(fmt.Sprint(err, string(wrong.Body)))
	}
	out, err := json.Marshal(map[string]interface{}{
		"chat":     chat.JSON200.Choices[0].Message.Content,
		"tokens":   chat.JSON200.Usage.TotalTokens,
		"response": response.JSON200.Status,
		"error":    wrong.JSON4XX.Error.Param,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(out))
}
