package fakebot

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

const (
	// queryKeep is how long a query can be answered.
	queryKeep = 10 * time.Second
	maxQuery  = 256
)

// Offer is what somebody sees above what they type.
type Offer struct {
	// Label and Start are those of the button that leads to the private chat.
	Label, Start string
	// Photos are the pictures that can be sent.
	Photos []string
}

// queries are what people type after the bot's name, and what they are shown.
type queries struct {
	*chats
	queried map[string]time.Time
	offers  map[string]Offer
}

// Query types something after the bot's name, in any chat, and returns the id of the query.
func (p *Person) Query(text string) (id string) {
	f := p.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fileID++
	id = fmt.Sprintf("query%d", f.fileID)
	f.queried[id] = time.Now()
	if runes := []rune(text); len(runes) > maxQuery {
		text = string(runes[:maxQuery])
	}
	if f.o.Inline {
		f.push("inline_query", map[string]any{"id": id, "from": p.json(), "query": text, "offset": "", "chat_type": "supergroup"})
	}
	return id
}

// Offered returns the answer to a query; false if there is none.
func (f *Fake) Offered(id string) (Offer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o, ok := f.offers[id]
	return o, ok
}

// answer holds an answer against the documentation. The caller holds mu.
func (f *queries) answer(c *call) (any, *problem) {
	id := c.params["inline_query_id"]
	if at, known := f.queried[id]; !known || time.Since(at) > queryKeep {
		return nil, refuse("query is too old and response timeout expired or query ID is invalid")
	}
	var results []struct {
		Type, ID string
		Photo    string `json:"photo_file_id"`
	}
	if err := json.Unmarshal([]byte(c.params["results"]), &results); err != nil || results == nil {
		return nil, refuse("can't parse inline query results JSON object")
	}
	var o Offer
	seen := map[string]bool{}
	for _, r := range results {
		switch {
		case r.ID == "" || len(r.ID) > 64 || seen[r.ID]:
			return nil, refuse("RESULT_ID_INVALID")
		case r.Type != "photo" || f.files[r.Photo] == nil:
			return nil, refuse("wrong file identifier/HTTP URL specified")
		}
		seen[r.ID] = true
		o.Photos = append(o.Photos, r.Photo)
	}
	if text := c.params["button"]; text != "" {
		var button struct {
			Text  string
			Start string `json:"start_parameter"`
		}
		if err := json.Unmarshal([]byte(text), &button); err != nil || button.Text == "" {
			return nil, refuse("can't parse inline query results button JSON object")
		}
		if len(button.Start) < 1 || len(button.Start) > 64 || strings.Trim(button.Start, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			return nil, refuse("START_PARAM_INVALID")
		}
		o.Label, o.Start = button.Text, button.Start
	}
	f.offers[id] = o
	f.changedNow()
	return true, nil
}
