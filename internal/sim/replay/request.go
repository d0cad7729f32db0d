package replay

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// host returns the address of the recorded server.
func (tr Trace) host() string {
	if tr.Version == "0.33.0" {
		return "127.0.0.1:8488"
	}
	return "127.0.0.1:8188"
}

// request plays one HTTP step.
func (p *Player) request(step *pyjson.Object) bool {
	label := step.String("label")
	req, err := p.build(step.Object("request"))
	if err != nil {
		p.differs(label, Status, "a request that can be played", err.Error())
		return false
	}
	client := &http.Client{
		Transport:     &http.Transport{DialContext: p.Dial, DisableKeepAlives: true, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       longest,
	}
	resp, err := client.Do(req)
	recorded := step.Object("response").String("error")
	if err != nil {
		if recorded == "" {
			p.differs(label, Status, "an answer", err.Error())
		}
		return true
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		p.differs(label, Body, "a whole answer", err.Error())
	case recorded != "":
		p.differs(label, Status, recorded, resp.Status)
	default:
		p.answers = append(p.answers, answer{step, resp.StatusCode, resp.Header, data})
		p.learn(step, resp.Header, data)
	}
	return true
}

func (p *Player) build(rec *pyjson.Object) (*http.Request, error) {
	body, contentType := p.body(rec)
	req, err := http.NewRequestWithContext(p.ctx, rec.String("method"), p.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	rawPath, rawQuery, _ := strings.Cut(p.renamed(rec.String("path")), "?")
	decoded, err := url.PathUnescape(rawPath)
	if err != nil {
		return nil, err
	}
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery = decoded, rawPath, rawQuery
	req.Host = p.Trace.host()
	for key, v := range rec.Object("headers").All() {
		switch {
		case key == "Host":
			req.Host = text(v)
		case key == "Content-Length", key == "Content-Type" && contentType != "":
		default:
			req.Header.Set(key, p.renamed(text(v)))
		}
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return req, nil
}

// learn records what the server generated in place of recorded values.
func (p *Player) learn(step *pyjson.Object, header http.Header, data []byte) {
	was, _ := pyjson.Parse([]byte(step.Object("response").String("text"))) // NaN has no "json"
	rec, _ := was.(*pyjson.Object)
	now, err := pyjson.Parse(data)
	if o, ok := now.(*pyjson.Object); err == nil && ok {
		if was, is := rec.String("prompt_id"), o.String("prompt_id"); was != "" && is != "" && was != is {
			p.ids = append(p.ids, was, is)
		}
	}
	if s, ok := now.(pyjson.String); err == nil && ok && strings.HasSuffix(step.Object("request").String("path"), "/users") {
		p.ids = append(p.ids, text(was), string(s))
	}
	get := recordedHeader(step.Object("response").Object("headers"))
	for _, name := range []string{"Etag", "Last-Modified"} {
		if was, is := get(name), header.Get(name); was != "" && is != "" && was != is && !slices.Contains(p.ids, was) {
			p.ids = append(p.ids, was, is)
		}
	}
	p.learnLetters(step.Object("response").String("text"), string(data))
}

func (p *Player) compareAnswer(a answer) {
	label := a.step.String("label")
	p.path = a.step.Object("request").String("path")
	defer func() { p.path = "" }()
	if p.Skip(label, "") {
		return
	}
	rec := a.step.Object("response")
	if want := int(integer(rec, "status")); want != a.status {
		p.differs(label, Status, strconv.Itoa(want), strconv.Itoa(a.status)+" "+string(a.body[:min(len(a.body), 300)]))
	}
	p.compare(label, Headers, normalHeaders(recordedHeader(rec.Object("headers"))), p.original(normalHeaders(a.header.Get)))
	want, ok := rec.Get("text")
	if !ok { // a binary or an empty body: the kind of its content, where encoders agree
		head, _ := hex.DecodeString(rec.String("head_hex")) // the recorder wrote hex
		short := func(b []byte) string { return string(b[:min(3, len(b))]) }
		p.compare(label, Body, short(head), short(a.body))
		return
	}
	p.compare(label, Body, normalBody(text(want)), normalBody(p.original(string(a.body))))
}

func (p *Player) compare(step, what, want, got string) {
	if want != got && !p.Skip(step, what) {
		p.differs(step, what, want, got)
	}
}
