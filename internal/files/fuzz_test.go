package files

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

func FuzzPlace(f *testing.F) {
	for _, s := range [][2]string{{"", "a.png"}, {"a/../b", "c"}, {"..", "x"}, {`..\..`, "x"}, {"a", "../../x"}, {"a//b/", "."}, {"\x00", "x"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, subfolder, filename string) {
		p, ok := placeOf(job.FileRef{Type: job.TypeInput, Subfolder: subfolder, Filename: filename})
		if !ok {
			return
		}
		// The file stays in its folder, on any kind of instance.
		full := path.Join("/root", p.dir, p.name)
		require.True(t, strings.HasPrefix(full, "/root/"))
		require.Equal(t, "/root/"+strings.TrimPrefix(p.dir+"/"+p.name, "/"), full)
		require.NotContains(t, p.dir+p.name, `\`)
		require.NotContains(t, p.dir+p.name, "\x00")
		require.NotContains(t, p.name, "/")
		again, ok := placeOf(p.ref())
		require.True(t, ok)
		require.Equal(t, p, again, "one spelling only")
		require.True(t, strings.HasSuffix(filename, p.name))
	})
}

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-9", "bytes=-5", "bytes=5-", "bytes=0-1,2-3", "x=1-2", "bytes=99999999999999999999-"} {
		f.Add(s, int64(10))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		r, ok := parseRange(header, size)
		if ok {
			require.GreaterOrEqual(t, r.from, int64(0))
			require.Positive(t, r.length)
			require.LessOrEqual(t, r.from, size-r.length)
		}
	})
}

func FuzzNumbered(f *testing.F) {
	for _, s := range []string{"ComfyUI_00001_.png", "v_00001-audio.mp4", "_00001", "a_999999999999999999999_.png", "a_00001_00002_.png"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		n, ok := parseNumbered(name)
		if !ok {
			return
		}
		digits := name[len(n.prefix)+1 : len(n.prefix)+1+n.width]
		require.Equal(t, name, n.prefix+"_"+digits+n.suffix)
		require.Equal(t, number(digits), n.number)
	})
}

func FuzzDisposition(f *testing.F) {
	for _, s := range []string{
		`form-data; name="image"; filename="a.png"`, `form-data; name=image; filename*=UTF-8''%41`, `form-data; name="a\"b;c"`,
		`;name="`, `form-data; name="x"; filename="\`, `form-data; filename*=''%zz; name=`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		_, filename, ok := parseDisposition(header)
		if ok && strings.Contains(header, `filename="`) && !strings.Contains(header, "*") {
			require.False(t, strings.HasPrefix(filename, "/"), filename)
		}
	})
}

func FuzzForm(f *testing.F) {
	f.Add("multipart/form-data; boundary=b", []byte("--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\nx\r\n--b--\r\n"))
	f.Add("application/x-www-form-urlencoded", []byte("image=x&%zz"))
	f.Fuzz(func(t *testing.T, typ string, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set("Content-Type", typ)
		form, err := readForm(httptest.NewRecorder(), r, imageForm(), t.TempDir(), 100)
		if err != nil {
			return
		}
		defer form.Close()
		if form.file != nil {
			require.LessOrEqual(t, form.file.size, int64(100))
			require.NotEmpty(t, form.filename)
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("filename=a.png&preview=webp;50&%zz=%4")
	f.Fuzz(func(t *testing.T, raw string) {
		q := parseQuery(raw)
		pictureAsked(q)
		if p, status := viewPlace(q); status == http.StatusOK {
			_, ok := placeOf(p.ref())
			require.True(t, ok)
		}
	})
}

func FuzzEntry(f *testing.F) {
	src := Source{Instance: "a", Boot: "b", Type: job.TypeOutput, Filename: `"key":"x"`, ETag: `"e"`}
	raw := must(Entry{Key: "content/ab/abc", Size: 5, Modified: time.Unix(5, 6), Source: &src}.encode())
	f.Add(raw)
	f.Add(`{"v":2,"new":{"x":[1,2]},"size":1e3}`)
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := decodeEntry(raw, place{typ: job.TypeInput, name: "n"})
		if err != nil {
			return
		}
		again, err := e.encode()
		if err != nil {
			return
		}
		back := must(decodeEntry(again, place{typ: job.TypeInput, name: "n"}))
		require.Equal(t, e.Key, back.Key)
		require.Equal(t, e.Source, back.Source)
		require.Equal(t, e.Size, back.Size)
	})
}

func FuzzPNGText(f *testing.F) {
	data := []byte(pngSignature)
	f.Add(data)
	f.Add(append(data, "\x00\x00\x00\x03tEXta\x00b\x00\x00\x00\x00\x00\x00\x00\x00IEND"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		text, err := readPNGText(bytes.NewReader(data))
		if err != nil {
			require.ErrorIs(t, err, errPNGText)
			return
		}
		// The text is the same when it is read back from the PNG it is put into.
		var out bytes.Buffer
		w := newTextWriter(&out, text)
		header := append([]byte(pngSignature), make([]byte, headerEnd-len(pngSignature))...)
		copy(header[8:], "\x00\x00\x00\x0dIHDR")
		for _, chunk := range [][]byte{header[:5], header[5:20], header[20:], []byte("\x00\x00\x00\x00IEND")} {
			require.Len(t, chunk, must(w.Write(chunk)))
		}
		require.Equal(t, text, must(readPNGText(&out)))
	})
}

// Members that this hub does not know survive a change.
func TestEntryKeepsWhatANewerHubWrote(t *testing.T) {
	t.Parallel()
	e := must(decodeEntry(`{"v":9,"key":"","size":-1,"etag":"","tier":{"cold":true},"source_id":"x"}`, place{typ: job.TypeInput, name: "n"}))
	e.Key = "k"
	raw := must(e.encode())
	require.Contains(t, raw, `"tier":{"cold":true}`)
	require.Contains(t, raw, `"key":"k"`)
}

// readPNGText collects the text chunks of a PNG.
func readPNGText(r io.Reader) ([]byte, error) {
	var text bytes.Buffer
	n, err := copyPNGText(&text, r)
	if n == 0 {
		return nil, err
	}
	return text.Bytes()[:n], err
}
