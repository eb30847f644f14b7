// Scores prompts with llm-d's own index of KV blocks, which follows the KV events of servers. tools/compat/install-llm-d builds it.
//
//	kv-indexer pod-a=tcp://127.0.0.1:5557 pod-b=tcp://127.0.0.1:5657
//
// Each line of its input is a prompt, {"model": "...", "tokens": [...]}; its answer is a line with the score of each pod that has a prefix.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
)

type prompt struct {
	Model  string   `json:"model"`
	Tokens []uint32 `json:"tokens"`
}

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, pods []string) error {
	// As llm-d's endpoint picker: blocks of 16 tokens, 1 point for a block in the pool and 0.8 for a block in host memory.
	processor, err := kvblock.NewChunkedTokenDatabase(nil)
	if err != nil {
		return err
	}
	config, err := kvcache.NewDefaultConfig()
	if err != nil {
		return err
	}
	indexer, err := kvcache.NewKVCacheIndexer(ctx, config, processor)
	if err != nil {
		return err
	}
	adapter, err := engineadapter.NewAdapter("vllm")
	if err != nil {
		return err
	}
	events := kvevents.DefaultConfig()
	pool := kvevents.NewPool(events, indexer.KVBlockIndex(), processor, adapter)
	pool.Start(ctx)
	subscribers := kvevents.NewSubscriberManager(pool)
	for _, pod := range pods {
		name, endpoint, _ := strings.Cut(pod, "=")
		if err := subscribers.EnsureSubscriber(ctx, name, endpoint, events.TopicFilter, true); err != nil {
			return err
		}
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked prompt
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		scores, err := indexer.ScoreTokens(ctx, asked.Tokens, asked.Model, nil, nil)
		if err != nil {
			return err
		}
		if scores == nil {
			scores = map[string]float64{}
		}
		if err := answers.Encode(scores); err != nil {
			return err
		}
	}
	return lines.Err()
}
