package files

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"image/color"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

type trace struct {
	Version string `json:"comfyui_version"`
	Steps   []step `json:"steps"`
}

type step struct {
	Label   string `json:"label"`
	Request struct {
		Method    string            `json:"method"`
		Path      string            `json:"path"`
		Headers   map[string]string `json:"headers"`
		Text      string            `json:"text"`
		JSON      json.RawMessage   `json:"json"`
		Multipart []struct {
			Name     string  `json:"name"`
			Value    string  `json:"value"`
			Filename *string `json:"filename"`
			Type     string  `json:"type"`
			Bytes    int     `json:"bytes"`
			SHA256   string  `json:"sha256"`
		} `json:"multipart"`
	} `json:"request"`
	Response struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Text    string            `json:"text"`
		Bytes   int               `json:"bytes"`
	} `json:"response"`
}

func readTrace(t *testing.T, name string) trace {
	t.Helper()
	f := must(os.Open(filepath.Join("testdata", name+".json.gz")))
	defer f.Close()
	z := must(gzip.NewReader(f))
	var tr trace
	require.NoError(t, json.NewDecoder(z).Decode(&tr))
	require.NotEmpty(t, tr.Steps)
	return tr
}

// content returns a stand-in for a file of the recording. Equal hashes get equal content of the
// recorded length. Pictures are PNGs whose dimensions differ with the length.
func content(t *testing.T, filename, typ, sha string, size int) []byte {
	if !strings.HasPrefix(typ, "image/png") || size < 200 {
		return []byte(strings.Repeat("x", size))
	}
	shade := color.NRGBA{R: sha[0], G: sha[1], B: sha[2], A: 200}
	edge := 4 + size%13
	return painted(t, edge, edge, shade, size)
}

// body writes a recorded form. reversed puts the fields before the file.
func (s step) body(t *testing.T, reversed bool) (io.Reader, string) {
	t.Helper()
	rq := s.Request
	if rq.JSON != nil {
		return bytes.NewReader(rq.JSON), ""
	}
	if rq.Multipart == nil {
		return strings.NewReader(rq.Text), ""
	}
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for i := range rq.Multipart {
		if reversed {
			i = len(rq.Multipart) - 1 - i
		}
		p := rq.Multipart[i]
		disposition := `form-data; name="` + p.Name + `"`
		h := textproto.MIMEHeader{}
		data := []byte(p.Value)
		if p.Filename != nil {
			disposition += `; filename="` + *p.Filename + `"`
			h.Set("Content-Type", p.Type)
			data = content(t, *p.Filename, p.Type, p.SHA256, p.Bytes)
		}
		h.Set("Content-Disposition", disposition)
		part := must(w.CreatePart(h))
		must(part.Write(data))
	}
	require.NoError(t, w.Close())
	return &buf, w.FormDataContentType()
}

// server is the file API of one hub.
func server(t *testing.T, store *Store, inst *instance) *httptest.Server {
	t.Helper()
	view := NewView(store, inst.fetch, ViewOptions{
		Preview: func(_ context.Context, src Source, q url.Values) (*http.Response, error) {
			require.Equal(t, src.Filename, q.Get("filename"), "an instance is asked by its own names")
			rec := httptest.NewRecorder()
			rec.Header().Set("Content-Type", "image/webp")
			_, _ = rec.WriteString("RIFF by the instance")
			return rec.Result(), nil
		},
	})
	uploads := NewUploads(store, view, UploadOptions{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.URL.Path, "/api") {
		case "/view":
			view.ServeView(w, r, tenant, "a")
		case "/upload/image":
			assert.NoError(t, uploads.ServeImage(w, r, tenant))
		case "/upload/mask":
			assert.NoError(t, uploads.ServeMask(w, r, tenant, "a"))
		}
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(srv.Client().CloseIdleConnections)
	return srv
}

func TestTraces(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.3.64", "0.33.0"} {
		for _, reversed := range []bool{false, true} {
			name := version
			if reversed {
				name += " with the file last"
			}
			t.Run("upload "+name, func(t *testing.T) {
				eachStore(t, func(t *testing.T, store *Store) { replay(t, store, "upload-"+version, reversed) })
			})
		}
		for _, scenario := range []string{"view", "preview-image"} {
			t.Run(scenario+" "+version, func(t *testing.T) {
				eachStore(t, func(t *testing.T, store *Store) { replay(t, store, scenario+"-"+version, false) })
			})
		}
	}
}

// replay sends the recorded requests and compares the answers.
func replay(t *testing.T, store *Store, name string, reversed bool) {
	tr := readTrace(t, name)
	if tr.Version == "0.3.64" {
		harden(tr.Steps)
	}
	inst := newInstance()
	collector := newCollector(t, store, inst)
	srv := server(t, store, inst)
	if !strings.HasPrefix(name, "upload") {
		makeViewed(t, tr.Steps[0], store, inst, collector)
	}
	// ETags and times of the recording stand in for the hub's own.
	ours := map[string]string{}
	for _, s := range tr.Steps {
		body, typ := s.body(t, reversed)
		req, err := http.NewRequestWithContext(t.Context(), s.Request.Method, srv.URL+s.Request.Path, body)
		require.NoError(t, err, s.Label)
		for key, value := range s.Request.Headers {
			if our, ok := ours[value]; ok {
				value = our
			}
			req.Header.Set(key, value)
		}
		if typ != "" {
			req.Header.Set("Content-Type", typ)
		}
		if req.Header.Get("Accept-Encoding") == "" {
			req.Header.Set("Accept-Encoding", "identity")
		}
		resp, err := srv.Client().Do(req)
		require.NoError(t, err, s.Label)
		got, err := io.ReadAll(resp.Body)
		require.NoError(t, err, s.Label)
		require.NoError(t, resp.Body.Close())
		compare(t, s, resp, got)
		for _, key := range []string{"Etag", "Last-Modified"} {
			if recorded := s.Response.Headers[key]; recorded != "" {
				ours[recorded] = resp.Header.Get(key)
			}
		}
	}
}

// makeViewed makes the output that the recording views.
func makeViewed(t *testing.T, first step, store *Store, inst *instance, collector *Collector) {
	t.Helper()
	u := must(url.Parse(first.Request.Path))
	q := u.Query()
	ref := job.FileRef{Type: q.Get("type"), Subfolder: q.Get("subfolder"), Filename: q.Get("filename")}
	inst.put(ref, string(painted(t, 16, 16, color.NRGBA{R: 9, G: 8, B: 7, A: 255}, first.Response.Bytes)))
	require.Equal(t, ref, must(store.AllotOutput(t.Context(), tenant, inst.source("gpu1", ref))))
	must(collector.Collect(t.Context(), tenant, ref))
}

// harden turns the answers of a 0.3.64 server into those that the hub gives whatever version its
// servers have: as in ComfyUI since 0.28.0, no file is active content.
func harden(steps []step) {
	for _, s := range steps {
		h := s.Response.Headers
		_, text, _ := strings.Cut(s.Request.Path, "?")
		q := parseQuery(text)
		if h["Content-Disposition"] == "" || !pictureAsked(q).raw {
			continue // what is made at the hub is a picture
		}
		h["X-Content-Type-Options"] = "nosniff"
		if typ := mimeType(q["filename"]); Active(typ) {
			h["Cache-Control"], h["Vary"] = "no-store", "Sec-Fetch-Dest"
			h["Content-Type"] = octetStream
			h["Content-Disposition"] = "attachment; " + h["Content-Disposition"]
		}
	}
}

func compare(t *testing.T, s step, resp *http.Response, body []byte) {
	t.Helper()
	require.Equal(t, s.Response.Status, resp.StatusCode, s.Label)
	picture := strings.Contains(s.Request.Path, "preview=") || strings.HasSuffix(s.Request.Path, "channel=a") ||
		strings.HasSuffix(s.Request.Path, "channel=rgb") || strings.Contains(s.Label, "masked")
	for key, want := range s.Response.Headers {
		got := resp.Header.Get(key)
		switch key {
		case "Transfer-Encoding": // with an empty body
			continue
		case "Content-Type":
			if resp.StatusCode != http.StatusNotModified { // net/http removes it there
				require.Equal(t, want, got, s.Label)
			}
		case "Etag":
			require.Regexp(t, `^"[0-9a-f]+-[0-9a-f]+"$`, got, s.Label)
		case "Last-Modified":
			_, err := http.ParseTime(got)
			require.NoError(t, err, s.Label)
		case "Content-Length":
			if !picture {
				require.Equal(t, want, got, s.Label)
			}
			if resp.Request.Method != http.MethodHead {
				require.Equal(t, strconv.Itoa(len(body)), got, s.Label)
			}
		case "Content-Disposition":
			// The recorder decoded the bytes as Latin-1.
			require.Equal(t, strings.ReplaceAll(want, "Ã¼", "ü"), got, s.Label)
		default:
			require.Equal(t, want, got, "%s: %s", s.Label, key)
		}
	}
	for key := range resp.Header {
		if key == "Date" || key == "Connection" || (key == "Content-Length" && s.Response.Status == 416) {
			continue
		}
		require.Contains(t, s.Response.Headers, key, s.Label)
	}
	if s.Response.Text != "" {
		require.Equal(t, s.Response.Text, string(body), s.Label)
	} else if !picture {
		require.Len(t, body, s.Response.Bytes, s.Label)
	}
}
