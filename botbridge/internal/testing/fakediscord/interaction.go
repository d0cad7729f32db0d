package fakediscord

import (
	"encoding/json"
	"net/http"
	"time"
)

// interact makes a call whose login is the token of an interaction; the caller holds mu.
func (f *interactions) interact(r *http.Request, name string, values []string, text []byte, p *payload) (any, int, *refusal) {
	in := f.waiting[values[1]]
	if name == "POST /interactions/{interaction_id}/{interaction_token}/callback" {
		if in == nil || in.id != values[0] {
			return nil, 0, refuse(http.StatusNotFound, 10062, "Unknown interaction")
		}
		return f.callback(r, in, text, p)
	}
	switch {
	case values[0] != Application:
		return nil, 0, unknownWebhook()
	case in == nil, time.Since(in.born) > f.o.TokenLife:
		return nil, 0, invalidToken()
	case !in.acked:
		return nil, 0, unknownWebhook()
	}
	if name == "POST /webhooks/{webhook_id}/{webhook_token}" {
		if err := json.Unmarshal(text, p); err != nil {
			return nil, 0, invalidForm("%v", err)
		}
		return f.followUp(in, p)
	}
	if in.answer == nil {
		return nil, 0, unknownMessage()
	}
	switch name {
	case "GET /webhooks/{webhook_id}/{webhook_token}/messages/@original":
	case "DELETE /webhooks/{webhook_id}/{webhook_token}/messages/@original":
		f.remove(in.answer)
		in.answer = nil
		return nil, http.StatusNoContent, nil
	case "PATCH /webhooks/{webhook_id}/{webhook_token}/messages/@original":
		if err := json.Unmarshal(text, p); err != nil {
			return nil, 0, invalidForm("%v", err)
		}
		if _, problem := f.change(in.answer, p); problem != nil {
			return nil, 0, problem
		}
	}
	return f.wire(in.answer), http.StatusOK, nil
}

// callback is the first answer to an interaction.
func (f *interactions) callback(r *http.Request, in *interaction, text []byte, p *payload) (any, int, *refusal) {
	var c struct {
		Type int             `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, 0, invalidForm("%v", err)
	}
	if len(c.Data) > 0 && c.Type != 9 {
		if err := json.Unmarshal(c.Data, p); err != nil {
			return nil, 0, invalidForm("%v", err)
		}
	}
	switch {
	case in.acked:
		return nil, 0, refuse(http.StatusBadRequest, 40060, "Interaction has already been acknowledged.")
	case time.Since(in.born) > f.o.AckWithin:
		return nil, 0, refuse(http.StatusNotFound, 10062, "Unknown interaction")
	}
	if (c.Type == 8) != (in.kind == 4) || c.Type == 6 && in.answer == nil {
		return nil, 0, refuse(http.StatusBadRequest, 50035, "Invalid Form Body")
	}
	if c.Type == 9 {
		form, problem := formOf(in, c.Data)
		if problem != nil {
			return nil, 0, problem
		}
		in.form = form
		f.touch()
	}
	in.acked = true
	if c.Type == 8 {
		in.suggested = []string{}
		for _, choice := range p.Choices {
			in.suggested = append(in.suggested, choice.Value)
		}
		f.touch()
	}
	m := in.answer // of a button: the message that has it
	if c.Type == 4 || c.Type == 5 {
		m = &Message{
			ID: f.id(), Channel: in.channel, FromBot: true, Author: BotUser, Used: true, Thinking: c.Type == 5, flags: p.Flags, webhook: true,
		}
		if p.Flags&flagEphemeral != 0 {
			m.Only = in.user
		}
		if c.Type == 5 {
			m.flags |= flagLoading
		} else if problem := f.apply(m, p); problem != nil {
			return nil, 0, problem
		}
		in.answer = m
		f.messages[in.channel] = append(f.messages[in.channel], m)
		f.emitOwn("MESSAGE_CREATE", m)
	}
	if r.URL.Query().Get("with_response") != "true" {
		return nil, http.StatusNoContent, nil
	}
	out := map[string]any{"interaction": map[string]any{"id": in.id, "type": in.kind, "channel_id": in.channel}}
	if c.Type == 4 || c.Type == 5 {
		out["interaction"].(map[string]any)["response_message_id"] = m.ID
		out["interaction"].(map[string]any)["response_message_loading"] = m.Thinking
		out["resource"] = map[string]any{"type": 4, "message": f.wire(m)}
	}
	return out, http.StatusOK, nil
}

// followUp is a further answer to an interaction. The first one after a deferred answer
// takes its place, and is seen by the same users.
func (f *interactions) followUp(in *interaction, p *payload) (any, int, *refusal) {
	if in.answer != nil && in.answer.Thinking {
		if problem := f.apply(in.answer, p); problem != nil {
			return nil, 0, problem
		}
		f.emitOwn("MESSAGE_UPDATE", in.answer)
		return f.wire(in.answer), http.StatusOK, nil
	}
	m := &Message{ID: f.id(), Channel: in.channel, FromBot: true, Author: BotUser, flags: p.Flags, webhook: true, born: time.Now()}
	if p.Flags&flagEphemeral != 0 {
		m.Only = in.user
	}
	if problem := f.apply(m, p); problem != nil {
		return nil, 0, problem
	}
	f.messages[in.channel] = append(f.messages[in.channel], m)
	f.emitOwn("MESSAGE_CREATE", m)
	return f.wire(m), http.StatusOK, nil
}
