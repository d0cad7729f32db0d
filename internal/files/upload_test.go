package files

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// part is a field of a form, with its header as sent.
type part struct {
	disposition string
	header      [2]string
	body        string
}

func post(t testing.TB, serve func(http.ResponseWriter, *http.Request, string) error, parts ...part) *httptest.ResponseRecorder {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, p := range parts {
		h := textproto.MIMEHeader{"Content-Disposition": {"form-data; " + p.disposition}}
		if p.header[0] != "" {
			h.Set(p.header[0], p.header[1])
		}
		pw := must(w.CreatePart(h))
		must(pw.Write([]byte(p.body)))
	}
	require.NoError(t, w.Close())
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/upload", &buf)
	r.Header.Set("Content-Type", w.FormDataContentType())
	rec := httptest.NewRecorder()
	require.NoError(t, serve(rec, r, tenant))
	return rec
}

func file(name, body string) part {
	return part{disposition: `name="image"; filename="` + name + `"`, body: body}
}

func text(name, body string) part { return part{disposition: `name="` + name + `"`, body: body} }

func newUploads(t testing.TB, s *Store, i *instance, limit int64) *Uploads {
	t.Helper()
	return NewUploads(s, NewView(s, i.fetch, ViewOptions{}), UploadOptions{MaxSize: func() int64 { return limit }})
}

func TestUploadForms(t *testing.T) {
	t.Parallel()
	binary := [2]string{"Content-Type", "application/octet-stream"}
	for name, c := range map[string]struct {
		parts  []part
		status int
		body   string // "" for any
	}{
		"semicolon":        {[]part{file("a;b.png", "x")}, 200, `{"name": "a;b.png", "subfolder": "", "type": "input"}`},
		"escaped quote":    {[]part{file(`a\"b.png`, "x")}, 200, `{"name": "a\"b.png", "subfolder": "", "type": "input"}`},
		"leading slashes":  {[]part{file("//a.png", "x")}, 200, `{"name": "a.png", "subfolder": "", "type": "input"}`},
		"extended name":    {[]part{{`name="image"; filename="x.png"; filename*=UTF-8''%C3%BC%20.png`, binary, "x"}}, 200, `{"name": "\u00fc .png", "subfolder": "", "type": "input"}`},
		"unquoted":         {[]part{{`name=image; filename=a.png`, binary, "x"}}, 200, `{"name": "a.png", "subfolder": "", "type": "input"}`},
		"first field wins": {[]part{text("type", "temp"), text("type", "input"), file("a", "1"), file("b", "2")}, 200, `{"name": "a", "subfolder": "", "type": "temp"}`},
		"other files":      {[]part{{`name="other"; filename="o"`, binary, "zz"}, file("a", "1")}, 200, `{"name": "a", "subfolder": "", "type": "input"}`},
		"base64":           {[]part{{`name="image"; filename="a"`, [2]string{"Content-Transfer-Encoding", "base64"}, base64.StdEncoding.EncodeToString([]byte("abc"))}}, 200, ""},
		"binary type":      {[]part{{`name="type"`, binary, "input"}, file("a", "1")}, 500, ""},
		"binary subfolder": {[]part{{`name="subfolder"`, binary, "x"}, file("a", "1")}, 500, ""},
		"type is a file":   {[]part{{`name="type"; filename="t"`, binary, "input"}, file("a", "1")}, 500, ""},
		"not UTF-8":        {[]part{text("subfolder", "\xff"), file("a", "1")}, 500, ""},
		"empty text image": {[]part{text("image", "")}, 400, ""},
		"no name":          {[]part{{`filename="a"`, binary, "x"}}, 500, ""},
		"type before file": {[]part{text("type", "bad")}, 500, ""},
		"at the limit":     {[]part{file("a", strings.Repeat("x", 1000))}, 200, ""},
		"over the limit":   {[]part{file("a", strings.Repeat("x", 1001))}, 413, "Maximum request body size 1000 exceeded, actual body size 1001"},
		"other over it":    {[]part{{`name="o"; filename="o"`, binary, strings.Repeat("x", 1001)}}, 413, ""},
		"long text":        {[]part{text("subfolder", strings.Repeat("x", maxField+1))}, 413, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, redistest.Embedded(t))
			u := newUploads(t, s, newInstance(), 1000)
			rec := post(t, u.ServeImage, c.parts...)
			require.Equal(t, c.status, rec.Code, rec.Body.String())
			if c.body != "" {
				require.Equal(t, c.body, rec.Body.String())
			}
			if name == "base64" {
				require.Equal(t, "abc", s.mustRead(t, input("a")))
			}
		})
	}
}

func TestUploadBrokenForms(t *testing.T) {
	t.Parallel()
	u := newUploads(t, newStore(t, redistest.Embedded(t)), newInstance(), 1000)
	for name, c := range map[string]struct {
		typ, body string
		status    int
	}{
		"no boundary":  {"multipart/form-data", "x", 500},
		"cut off":      {"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\nhalf", 500},
		"no parts":     {"multipart/form-data; boundary=b", "", 400},
		"other type":   {"application/json", "{}", 400},
		"no type":      {"", "", 400},
		"bad type":     {";;", "", 400},
		"text image":   {"application/x-www-form-urlencoded", "image=x", 500},
		"long encoded": {"application/x-www-form-urlencoded", "a=" + strings.Repeat("x", maxField), 413},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/upload/image", strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.typ)
		rec := httptest.NewRecorder()
		require.NoError(t, u.ServeImage(rec, r, tenant))
		status := c.status
		if name == "no parts" {
			status = rec.Code // an empty body is a cut one or an empty form
		}
		require.Equal(t, status, rec.Code, name)
	}
	require.Empty(t, u.store.blobKeys(t))
}

// The caller of the handlers reports in its own format that a tenant is full.
func TestUploadOfAFullTenant(t *testing.T) {
	s := parallelStore(t)
	s.limits = func(string) Limits { return Limits{Bytes: 1 << 20, Files: 1} }
	u := newUploads(t, s, newInstance(), 1<<20)
	require.Equal(t, http.StatusOK, post(t, u.ServeImage, file("a.png", string(painted(t, 5, 4, color.NRGBA{R: 9, A: 255}, 0)))).Code)
	for name, serve := range map[string]func(http.ResponseWriter, *http.Request, string) error{"image": u.ServeImage, "mask": asCaller(u.ServeMask)} {
		var err error
		rec := post(t, func(w http.ResponseWriter, r *http.Request, tenant string) error {
			err = serve(w, r, tenant)
			return nil
		},
			file("b.png", string(painted(t, 5, 4, color.NRGBA{A: 255}, 0))), text("original_ref", `{"filename": "a.png", "type": "input"}`))
		var full *FullError
		require.ErrorAs(t, err, &full, name)
		require.Equal(t, "input_files", full.Limit)
		require.Empty(t, rec.Header(), "nothing is answered")
		require.Empty(t, rec.Body.String())
	}
}

func TestTroubleForBrowsers(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	r.Header.Set("Accept", "text/html,*/*")
	rec := httptest.NewRecorder()
	answerTrouble(rec, r)
	require.Contains(t, rec.Body.String(), "<h1>500 Internal Server Error</h1>")
}

// withText puts a text chunk after the header of a PNG.
func withText(data []byte, typ, body string) []byte {
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	chunk = append(chunk, typ+body...)
	chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
	return append(append(append([]byte{}, data[:headerEnd]...), chunk...), data[headerEnd:]...)
}

func TestMask(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	u := newUploads(t, s, i, 1<<20)
	original := withText(withText(painted(t, 5, 4, color.NRGBA{R: 10, G: 20, B: 30, A: 255}, 0), "tEXt", "workflow\x00{}"), "iTXt", "p\x00\x00\x00\x00\x00ü")
	i.put(job.FileRef{Type: job.TypeTemp, Subfolder: "sub", Filename: "o_00001_.png"}, string(original))
	must(s.AllotOutput(t.Context(), tenant, i.source("gpu1", job.FileRef{Type: job.TypeTemp, Subfolder: "sub", Filename: "o_00001_.png"})))

	img := image.NewNRGBA(image.Rect(0, 0, 5, 4))
	for k := range 5 * 4 {
		img.Pix[k*4+3] = byte(k * 12)
	}
	var mask bytes.Buffer
	require.NoError(t, png.Encode(&mask, img))
	rec := post(t, asCaller(u.ServeMask), file("m.png", mask.String()), text("subfolder", "clipspace"),
		text("original_ref", `{"filename": "o_00001_.png [temp]", "subfolder": "sub", "type": "output", "x": NaN}`))
	require.Equal(t, `{"name": "m.png", "subfolder": "clipspace", "type": "input"}`, rec.Body.String())

	got := s.mustRead(t, job.FileRef{Type: job.TypeInput, Subfolder: "clipspace", Filename: "m.png"})
	composed := must(png.Decode(strings.NewReader(got)))
	for k := range 5 * 4 {
		require.Equal(t, color.NRGBA{R: 10, G: 20, B: 30, A: byte(k * 12)}, composed.(*image.NRGBA).NRGBAAt(k%5, k/5))
	}
	wantText := must(readPNGText(bytes.NewReader(original)))
	gotText := must(readPNGText(strings.NewReader(got)))
	require.Equal(t, wantText, gotText)
	require.Contains(t, string(gotText), "workflow")

	// An opaque mask still gives a picture with an alpha channel.
	rec = post(t, asCaller(u.ServeMask), file("opaque.png", string(painted(t, 5, 4, color.NRGBA{A: 255}, 0))),
		text("original_ref", `{"filename":"m.png","subfolder":"clipspace","type":"input"}`))
	require.Equal(t, http.StatusOK, rec.Code)
	require.EqualValues(t, 6, s.mustRead(t, input("opaque.png"))[25], "the colour type with alpha")
}

func TestMaskOriginals(t *testing.T) {
	s := parallelStore(t)
	u := newUploads(t, s, newInstance(), 1<<20)
	mask := string(painted(t, 5, 4, color.NRGBA{A: 100}, 0))
	s.mustUpload(t, input("text.png"), "no picture")
	s.mustUpload(t, output("o.png"), mask)
	for reference, status := range map[string]int{
		`{"filename":"o.png"}`:                     200, // type output
		`{"filename":"nope.png"}`:                  -200,
		`{"filename":""}`:                          -200,
		`{"filename":"/o.png"}`:                    -200,
		`{"filename":"../o.png"}`:                  -200,
		`{"filename":"o.png","type":"bad"}`:        -200,
		`{"filename":"o.png","type":5}`:            -200,
		`{"filename":"o.png","subfolder":"../.."}`: -200,
		`{"filename":"o.png","subfolder":5}`:       500,
		`{"filename":5}`:                           500,
		`{}`:                                       500,
		`[]`:                                       500,
		``:                                         500,
		`{"filename":"text.png","type":"input"}`:   500,
	} {
		name := "m" + sum([]byte(reference))[:8] + ".png"
		rec := post(t, asCaller(u.ServeMask), file(name, mask), text("original_ref", reference))
		require.Equal(t, max(status, -status), rec.Code, reference)
		_, err := s.Resolve(t.Context(), tenant, input(name))
		if status == 200 {
			require.NoError(t, err, reference)
		} else {
			require.ErrorIs(t, err, ErrNotFound, reference)
		}
	}
	rec := post(t, asCaller(u.ServeMask), file("text.png", "no picture"))
	require.Equal(t, http.StatusOK, rec.Code, "the same bytes are found before the original is missed")
}

// asCaller serves every request as the same caller.
func asCaller(serve func(w http.ResponseWriter, r *http.Request, tenant, caller string) error) func(http.ResponseWriter, *http.Request, string) error {
	return func(w http.ResponseWriter, r *http.Request, tenant string) error { return serve(w, r, tenant, "a") }
}

// Every byte of a form is counted before it is kept, and comes back: fields in memory,
// files on disk.
func TestFormsAreCounted(t *testing.T) {
	t.Parallel()
	u := newUploads(t, newStore(t, redistest.Embedded(t)), newInstance(), 8<<20)
	field := "--b\r\nContent-Disposition: form-data; name=\"%\"\r\n\r\n" + strings.Repeat("x", maxField) + "\r\n"
	file := "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\n" + strings.Repeat("x", 4<<20) + "\r\n--b--\r\n"
	for name, body := range map[string]string{
		"fields": strings.ReplaceAll(field, "%", "subfolder") + strings.ReplaceAll(field, "%", "overwrite"),
		"a file": file,
	} {
		b := budget.New()
		b.Resize(budget.Memory, 3*maxField, 1, nil)
		b.Resize(budget.Disk, 1<<20, 1, nil)
		held := b.Open("ann", nil)
		r := httptest.NewRequestWithContext(budget.With(t.Context(), held), http.MethodPost, "/upload/image", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		require.NoError(t, u.ServeImage(w, r, tenant))
		require.Equal(t, http.StatusServiceUnavailable, w.Code, name)
		require.Zero(t, b.Used(budget.Memory), name)
		require.Zero(t, b.Used(budget.Disk), name)
	}
	parts := budget.NewParts(strings.NewReader("--b\r\nX: "+strings.Repeat("x", 1<<20)), "b")
	_, err := parts.Next()
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "the header of a part is bounded")
}

// Of fields that mean nothing neither text nor name is kept, but they must be valid text.
func TestFieldsThatDoNotCount(t *testing.T) {
	u := newUploads(t, newStore(t, redistest.Embedded(t)), newInstance(), 8<<20)
	field := func(name, text string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + text + "\r\n"
	}
	file := "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\nx\r\n--b--\r\n"
	many := ""
	for n := range 500 {
		many += field(strings.Repeat("n", 2<<10)+strconv.Itoa(n), strings.Repeat("ü", 2<<10))
	}
	type row struct {
		body   string
		status int
	}
	beside.Cases(t, map[string]row{
		"many":              {many + file, http.StatusOK},
		"the longest":       {field("x", strings.Repeat("x", maxOther)) + file, http.StatusOK},
		"too long":          {field("x", strings.Repeat("x", maxOther+1)) + file, http.StatusRequestEntityTooLarge},
		"no text":           {field("x", "a\xffb") + file, http.StatusInternalServerError},
		"half a character":  {field("x", "a\xc3") + file, http.StatusInternalServerError},
		"one that is split": {field("x", strings.Repeat("€", 100_000)) + file, http.StatusOK},
	}, func(t *testing.T, c row) {
		b := budget.New()
		b.Resize(budget.Memory, 16<<10, 1, nil)
		b.Resize(budget.Disk, 1<<20, 1, nil)
		r := httptest.NewRequestWithContext(budget.With(t.Context(), b.Open("ann", nil)), http.MethodPost, "/upload/image", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		require.NoError(t, u.ServeImage(w, r, tenant))
		require.Equal(t, c.status, w.Code, w.Body.String())
	})
}
