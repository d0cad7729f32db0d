package fakediscord

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody bounds the body of a call, in bytes.
const maxBody = 64 << 20

const base = "/api/v10"

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.gateway.origin = "http://" + r.Host
	f.mu.Unlock()
	path, ours := strings.CutPrefix(r.URL.Path, base)
	switch {
	case r.URL.Path == "/gateway/" || r.URL.Path == "/gateway":
		f.serveGateway(w, r)
	case strings.HasPrefix(r.URL.Path, "/attachments/"):
		f.serveFile(w, r)
	case ours:
		f.serveCall(w, r, path)
	default:
		http.NotFound(w, r)
	}
}

func (f *channels) serveFile(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	data, ok := f.files[r.URL.Path]
	f.mu.Unlock()
	if !ok || r.Header.Get("Authorization") != "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data)
}

// serveCall serves a call of the REST API, and holds it against the document.
func (f *Fake) serveCall(w http.ResponseWriter, r *http.Request, path string) {
	route, values, ok := f.schema.match(r.Method, path)
	if !ok {
		f.violate("%s %s is no call that Discord's document knows", r.Method, path)
		write(w, http.StatusNotFound, map[string]any{"code": 0, "message": "404: Not Found"})
		return
	}
	name := r.Method + " " + route
	text, files, err := body(r)
	if err != nil {
		write(w, http.StatusBadRequest, map[string]any{"code": 50109, "message": "The request body contains invalid JSON."})
		return
	}
	if err := f.schema.request(r.Method, route, text); err != nil {
		f.violate("the call %s: %v", name, err)
	}
	f.mu.Lock()
	f.calls[name]++
	fault := None
	if f.o.Fault != nil {
		fault = f.o.Fault(name)
	}
	f.mu.Unlock()
	if f.fails(w, r, fault) {
		return
	}
	answer := httptest.NewRecorder()
	f.call(answer, r, name, values, text, files)
	if answer.Code < http.StatusBadRequest {
		if err := f.schema.response(r.Method, route, answer.Code, answer.Body.Bytes()); err != nil {
			f.violate("the answer to %s: %v", name, err)
		}
	}
	switch fault {
	case CutAfter:
		cut(w)
		return
	case HangAfter:
		f.hang(r)
		cut(w)
		return
	default:
	}
	maps.Copy(w.Header(), answer.Header())
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// fails answers with a fault that has no effect.
func (f *place) fails(w http.ResponseWriter, r *http.Request, fault Fault) bool {
	switch fault {
	case Flood, FloodAll:
		f.flood(w, f.o.RetryAfter, fault == FloodAll)
	case Broken:
		write(w, http.StatusInternalServerError, map[string]any{"code": 0, "message": "500: Internal Server Error"})
	case CutBefore:
		cut(w)
	default:
		return false
	}
	return true
}

// flood answers with 429, as Discord does.
func (f *place) flood(w http.ResponseWriter, wait time.Duration, all bool) {
	h := w.Header()
	h.Set("Via", "1.1 google")
	h.Set("Retry-After", strconv.Itoa(int(wait.Seconds()+0.999)))
	h.Set("X-RateLimit-Scope", "user")
	if all {
		h.Set("X-RateLimit-Global", "true")
		h.Set("X-RateLimit-Scope", "global")
	}
	write(w, http.StatusTooManyRequests, map[string]any{"message": "You are being rate limited.", "retry_after": wait.Seconds(), "global": all})
}

func (f *place) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.done:
	}
}

func cut(w http.ResponseWriter) {
	if h, ok := w.(http.Hijacker); ok {
		if conn, _, err := h.Hijack(); err == nil {
			conn.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}

func (f *place) violate(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.violations = append(f.violations, fmt.Sprintf(format, args...))
}

// body reads the JSON of a call and its files.
func body(r *http.Request) ([]byte, map[string]upload, error) {
	reader := io.LimitReader(r.Body, maxBody)
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" {
		text, err := io.ReadAll(reader)
		return text, nil, err
	}
	var text []byte
	files := map[string]upload{}
	for form := multipart.NewReader(reader, params["boundary"]); ; {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return text, files, nil
		}
		if err != nil {
			return nil, nil, err
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, nil, err
		}
		if part.FormName() == "payload_json" {
			text = data
		} else {
			files[part.FormName()] = upload{part.FileName(), data}
		}
	}
}

// call makes a call.
func (f *Fake) call(w http.ResponseWriter, r *http.Request, name string, values []string, text []byte, files map[string]upload) {
	p := &payload{files: files}
	open := strings.Contains(name, "/webhooks/") || strings.Contains(name, "/interactions/")
	f.mu.Lock()
	defer f.mu.Unlock()
	var out any
	status, problem := http.StatusOK, (*refusal)(nil)
	switch {
	case !strings.HasPrefix(r.Header.Get("User-Agent"), "DiscordBot ("):
		problem = refuse(http.StatusForbidden, 40333, "internal network error")
	case !open && r.Header.Get("Authorization") != "Bot "+Token:
		problem = refuse(http.StatusUnauthorized, 0, "401: Unauthorized")
	case open && r.Header.Get("Authorization") != "":
		f.violations = append(f.violations, name+" is called with the bot's token")
	}
	if name == "POST /channels/{channel_id}/messages" || name == "PATCH /channels/{channel_id}/messages/{message_id}" {
		if wait := f.pace(w.Header(), name, values[0]); wait > 0 {
			f.flood(w, wait, false)
			return
		}
	}
	if problem == nil {
		switch name {
		case "GET /applications/@me":
			out = map[string]any{
				"id": Application, "name": BotName, "icon": nil, "description": "", "type": nil, "bot": userOf(BotUser), "bot_public": true,
				"bot_require_code_grant": false, "verify_key": "", "flags": 0, "flags_new": "0", "max_participants": nil, "tags": []any{},
				"redirect_uris": []any{}, "interactions_endpoint_url": nil, "role_connections_verification_url": nil, "owner": userOf("323456789012345678"),
				"approximate_guild_count": 1, "approximate_user_install_count": 0, "approximate_user_authorization_count": 0,
				"explicit_content_filter": 0, "team": nil, "eligible_oauth2_scopes": []any{},
			}
		case "GET /gateway/bot":
			out = map[string]any{"url": "ws" + strings.TrimPrefix(f.gateway.origin, "http") + "/gateway", "shards": 1, "session_start_limit": map[string]any{
				"total": 1000, "remaining": 1000, "reset_after": 0, "max_concurrency": 1,
			}}
		case "GET /applications/{application_id}/commands":
			out = list(f.commands)
		case "PUT /applications/{application_id}/commands":
			out, problem = f.replace(text)
		case "GET /channels/{channel_id}/messages":
			out, problem = f.history(values[0], r.URL.Query())
		case "POST /channels/{channel_id}/messages":
			if err := json.Unmarshal(text, p); err != nil {
				problem = invalidForm("%v", err)
			} else {
				out, problem = f.post(values[0], p)
			}
		case "PATCH /channels/{channel_id}/messages/{message_id}":
			out, problem = f.edit(values, text, p)
		case "POST /channels/{channel_id}/typing":
			status = http.StatusNoContent
		case "DELETE /channels/{channel_id}/messages/{message_id}":
			status = http.StatusNoContent
			if m := f.find(values[0], values[1]); m == nil || m.Only != "" {
				problem = unknownMessage()
			} else {
				f.remove(m)
			}
		default:
			out, status, problem = f.interact(r, name, values, text, p)
		}
	}
	if problem != nil {
		write(w, problem.status, map[string]any{"code": problem.code, "message": problem.message})
		return
	}
	f.touch()
	write(w, status, out)
}

// pace applies the limit of a route in a channel, and tells of it as Discord does.
func (f *channels) pace(h http.Header, route, channel string) time.Duration {
	if f.o.PerFiveSeconds < 0 {
		return 0
	}
	now, window, key := time.Now(), 5*time.Second, route+" "+channel
	recent := slices.DeleteFunc(f.posted[key], func(t time.Time) bool { return now.Sub(t) > window })
	left := f.o.PerFiveSeconds - len(recent)
	reset := window
	if len(recent) > 0 {
		reset = window - now.Sub(recent[0])
	}
	h.Set("X-RateLimit-Bucket", fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(route))))
	h.Set("X-RateLimit-Limit", strconv.Itoa(f.o.PerFiveSeconds))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(0, left-1)))
	h.Set("X-RateLimit-Reset-After", strconv.FormatFloat(reset.Seconds(), 'f', 3, 64))
	if left <= 0 {
		f.posted[key] = recent
		return reset
	}
	f.posted[key] = append(recent, now)
	return 0
}

// nonceLife is how long Discord remembers a nonce: "the past few minutes".
const nonceLife = 5 * time.Minute

func (f *channels) post(channel string, p *payload) (any, *refusal) {
	if slices.Contains(f.o.NoAccess, channel) {
		return nil, refuse(http.StatusForbidden, 50001, "Missing Access")
	}
	if len(p.Nonce) > 25 {
		return nil, invalidForm("nonce")
	}
	for _, m := range f.messages[channel] {
		if p.EnforceNonce && p.Nonce != "" && m.nonce == p.Nonce && time.Since(m.born) < nonceLife {
			return f.wire(m), nil
		}
	}
	m := &Message{ID: f.id(), Channel: channel, FromBot: true, Author: BotUser, nonce: p.Nonce, born: time.Now(), flags: p.Flags &^ flagEphemeral}
	if p.Reference != nil {
		if f.find(channel, p.Reference.Message) == nil && (p.Reference.Fail == nil || *p.Reference.Fail) {
			return nil, invalidForm("message_reference: Unknown message")
		}
		m.ReplyTo = p.Reference.Message
	}
	if problem := f.apply(m, p); problem != nil {
		return nil, problem
	}
	f.messages[channel] = append(f.messages[channel], m)
	f.emitOwn("MESSAGE_CREATE", m)
	return f.wire(m), nil
}

// history lists the messages of a channel, the newest first: those that the bot may see. The
// caller holds mu.
func (f *channels) history(channel string, query url.Values) (any, *refusal) {
	if slices.Contains(f.o.NoAccess, channel) {
		return nil, refuse(http.StatusForbidden, 50001, "Missing Access")
	}
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), "50"))
	if err != nil || limit < 1 || limit > 100 {
		return nil, invalidForm("limit")
	}
	out, before := []any{}, query.Get("before")
	for _, m := range slices.Backward(f.messages[channel]) {
		if m.Only != "" || before != "" && (len(m.ID) > len(before) || len(m.ID) == len(before) && m.ID >= before) {
			continue
		}
		if len(out) == limit {
			break
		}
		one := f.wire(m)
		delete(one, "nonce")
		out = append(out, one)
	}
	return out, nil
}

func (f *channels) edit(values []string, text []byte, p *payload) (any, *refusal) {
	m := f.find(values[0], values[1])
	switch {
	case slices.Contains(f.o.NoAccess, values[0]):
		return nil, refuse(http.StatusForbidden, 50001, "Missing Access")
	case m == nil || m.Only != "":
		return nil, unknownMessage()
	case !m.FromBot:
		return nil, refuse(http.StatusForbidden, 50005, "Cannot edit a message authored by another user")
	}
	if err := json.Unmarshal(text, p); err != nil {
		return nil, invalidForm("%v", err)
	}
	return f.change(m, p)
}

// replace replaces the registered commands.
func (f *Fake) replace(text []byte) (any, *refusal) {
	var wanted []map[string]any
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&wanted); err != nil || len(wanted) > 115 {
		return nil, invalidForm("commands")
	}
	names := map[string]bool{}
	onMessage := 0
	for _, c := range wanted {
		name, _ := c["name"].(string)
		key := fmt.Sprint(c["type"], name)
		if c["type"] == float64(3) {
			if onMessage++; onMessage > 15 || names[key] || c["options"] != nil || c["description"] != nil {
				return nil, invalidForm("message command %q", name)
			}
			c["description"] = ""
		} else if names[key] || name != strings.ToLower(name) || strings.ContainsAny(name, " /.") {
			return nil, invalidForm("name %q", name)
		}
		names[key] = true
		options, _ := c["options"].([]any)
		optional := false
		for _, o := range options {
			required, _ := o.(map[string]any)["required"].(bool)
			if required && optional {
				return nil, refuse(http.StatusBadRequest, 50035, "Required options must be placed before non-required options")
			}
			optional = optional || !required
		}
		c["id"], c["application_id"], c["version"], c["default_member_permissions"], c["nsfw"] = f.id(), Application, f.id(), nil, false
		if c["description_localizations"] == nil {
			c["description_localizations"] = nil
		}
		if c["name_localizations"] == nil {
			c["name_localizations"] = nil
		}
	}
	f.commands, f.replaced = wanted, f.replaced+1
	return list(wanted), nil
}
