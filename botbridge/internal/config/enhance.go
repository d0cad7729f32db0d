package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/enhance"
)

// Enhance is the section of that name: an endpoint that finds better words.
type Enhance struct {
	// URL is where an API as OpenAI's begins, such as https://llm.example.com/v1.
	URL string `yaml:"url"`
	// Key is sent as a bearer token. Default: none.
	Key Secret `yaml:"key"`
	// Model is the model's name there.
	Model string `yaml:"model"`
	// Timeout bounds a call. Default: 20 s.
	Timeout time.Duration `yaml:"timeout"`
	// MaxTokens bounds an answer. Default: 400.
	MaxTokens int `yaml:"max_tokens"`
	// AtOnce is how many calls are made at the same time. Default: 4.
	AtOnce int `yaml:"at_once"`
	// PerDay is how often a user may ask per day (UTC). Default: 50.
	PerDay int `yaml:"per_user_per_day"`
	// Instructions say how to improve words. Default: see package enhance.
	Instructions string `yaml:"instructions"`
	// Translate offers English words for those in another script.
	Translate bool `yaml:"translate"`
}

const (
	maxEnhanceTimeout = 2 * time.Minute
	maxTokens         = 8192
	maxAtOnce         = 64
	maxPerDay         = 10_000
	maxInstructions   = 8000
	defaultPerDay     = 50
)

// Daily returns how often a user may ask per day.
func (e *Enhance) Daily() int {
	if e.PerDay == 0 {
		return defaultPerDay
	}
	return e.PerDay
}

// Options returns what package enhance needs. The key is read.
func (e *Enhance) Options(folder string) (enhance.Options, error) {
	key, err := e.Key.Read(folder)
	if err != nil {
		return enhance.Options{}, fmt.Errorf("enhance: key: %w", err)
	}
	return enhance.Options{
		URL: e.URL, Key: key, Model: e.Model, Timeout: e.Timeout, MaxTokens: e.MaxTokens, AtOnce: e.AtOnce,
		Instructions: e.Instructions, English: e.Translate,
	}, nil
}

func (c *Config) enhanceProblems() (list []error) {
	e := c.Enhance
	if e == nil {
		return nil
	}
	add := func(format string, args ...any) { list = append(list, fmt.Errorf("enhance: "+format, args...)) }
	switch u, err := url.Parse(e.URL); {
	case !isAddress(e.URL):
		add("url: this is not an address such as https://llm.example.com/v1")
	case err == nil && (u.User != nil || u.RawQuery != "" || u.Fragment != ""):
		add("url: the address has a login, a query or a fragment; put a key under key")
	case err == nil && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/chat/completions"):
		add("url: leave out /chat/completions at the end")
	}
	if e.Model == "" {
		add("model: no model is named")
	}
	key, err := e.Key.Read(c.Folder)
	switch {
	case err != nil:
		add("key: %w", err)
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
		add("key: a key has no spaces and only plain characters")
	}
	if e.Timeout < 0 || e.Timeout > maxEnhanceTimeout {
		add("timeout: %v is not between 0s and %v", e.Timeout, maxEnhanceTimeout)
	}
	for _, limit := range []struct {
		word        string
		value, most int
	}{{"max_tokens", e.MaxTokens, maxTokens}, {"at_once", e.AtOnce, maxAtOnce}, {"per_user_per_day", e.PerDay, maxPerDay}} {
		if limit.value < 0 || limit.value > limit.most {
			add("%s: %d is not between 0 and %d", limit.word, limit.value, limit.most)
		}
	}
	if len(e.Instructions) > maxInstructions {
		add("instructions: they are longer than %d bytes", maxInstructions)
	}
	return list
}
