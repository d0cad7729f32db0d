package files

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// ask sends one GET /view. headers come in pairs.
func ask(t testing.TB, v *View, query string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/view?"+query, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	v.ServeView(rec, r, tenant, "a")
	return rec
}

// A client sees an output the same way before and after it was copied.
func TestViewBeforeAndAfterTheCopy(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		i := newInstance()
		c := newCollector(t, s, i)
		v := NewView(s, i.fetch, ViewOptions{})
		taken := Source{Instance: "gpu0", Boot: "b", Type: job.TypeOutput, Filename: "x_00001_.png"}
		must(s.AllotOutput(t.Context(), tenant, taken))
		ref := allotted(t, s, i, "x_00001_.png", "0123456789")
		require.Equal(t, "x_00002_.png", ref.Filename)
		e := must(s.Resolve(t.Context(), tenant, ref))
		modified := i.clock.UTC().Format(http.TimeFormat)
		requests := [][]string{
			{},
			{"Range", "bytes=2-4"},
			{"Range", "bytes=-3"},
			{"Range", "bytes=99-"},
			{"If-None-Match", e.ETag},
			{"If-None-Match", `"x", W/` + e.ETag},
			{"If-None-Match", `"x"`},
			{"If-Modified-Since", modified},
			{"If-Match", `"x"`},
			{"If-Match", e.ETag},
			{"If-Unmodified-Since", i.clock.Add(-time.Hour).UTC().Format(http.TimeFormat)},
			{"Range", "bytes=2-4", "If-Range", e.ETag},
			{"Range", "bytes=2-4", "If-Range", `"x"`},
		}
		var before []*httptest.ResponseRecorder
		for _, headers := range requests {
			before = append(before, ask(t, v, "filename=x_00002_.png", headers...))
		}
		require.Equal(t, len(requests), i.fetches)
		must(c.Collect(t.Context(), tenant, ref))
		i.drop(output("x_00001_.png"))
		for n, headers := range requests {
			after := ask(t, v, "filename=x_00002_.png", headers...)
			require.Equal(t, before[n].Code, after.Code, "%v", headers)
			if after.Code < 400 { // net/http writes text into the others
				require.Equal(t, before[n].Body.String(), after.Body.String(), "%v", headers)
				require.Equal(t, before[n].Header(), after.Header(), "%v", headers)
			}
			require.Equal(t, `filename="x_00002_.png"`, after.Header().Get("Content-Disposition"))
		}
		require.Equal(t, "234", before[1].Body.String())
		require.Equal(t, http.StatusOK, before[12].Code, "another file is not joined to a part of this one")
	})
}

func TestViewThroughTroubles(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	v := NewView(s, i.fetch, ViewOptions{})
	allotted(t, s, i, "x.png", "0123456789")
	for name, c := range map[string]struct {
		hook   func(*http.Response)
		status int
	}{
		"gone":     {func(r *http.Response) { r.StatusCode = http.StatusNotFound }, http.StatusNotFound},
		"replaced": {func(r *http.Response) { r.Header.Set("Etag", `"other"`) }, http.StatusNotFound},
		"trouble":  {func(r *http.Response) { r.StatusCode = http.StatusInternalServerError }, http.StatusBadGateway},
	} {
		i.hook = c.hook
		rec := ask(t, v, "filename=x.png")
		require.Equal(t, c.status, rec.Code, name)
	}
	i.hook = func(r *http.Response) { r.Body = io.NopCloser(brokenReader{r.Body}) }
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { ask(t, v, "filename=x.png") },
		"a part must not look like the whole")
	down := NewView(s, func(context.Context, Source, http.Header) (*http.Response, error) { return nil, errBroken }, ViewOptions{})
	rec := ask(t, down, "filename=x.png")
	require.Equal(t, http.StatusBadGateway, rec.Code)
	require.JSONEq(t, `{"error":{"type":"instance_unavailable","message":"The instance that has the file does not answer","details":"","extra_info":{}},"node_errors":{}}`, rec.Body.String())
}

func TestViewAsksTheInstancesForUnknownFiles(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	i.put(job.FileRef{Type: job.TypeInput, Subfolder: "sub", Filename: "own.png"}, "the instance's own")
	v := NewView(s, i.fetch, ViewOptions{Missing: func(_ context.Context, who string, ref job.FileRef) (Source, bool) {
		require.Equal(t, tenant, who)
		_, ok := i.get(ref)
		return i.source("gpu1", ref), ok
	}})
	require.Equal(t, "the instance's own", ask(t, v, "filename=own.png&type=input&subfolder=./sub//").Body.String())
	require.Equal(t, http.StatusNotFound, ask(t, v, "filename=own.png&type=input").Code)
}

// A blob that the storage has lost is no reason to fail while the instance has the file.
func TestViewOfALostBlob(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	v := NewView(s, i.fetch, ViewOptions{})
	ref := allotted(t, s, i, "x.png", "picture")
	e := must(newCollector(t, s, i).Collect(t.Context(), tenant, ref))
	require.NoError(t, s.storage.Delete(t.Context(), e.Key))
	require.Equal(t, "picture", ask(t, v, "filename=x.png").Body.String())
	up := s.mustUpload(t, input("a"), "a")
	e = must(s.Resolve(t.Context(), tenant, up))
	require.NoError(t, s.storage.Delete(t.Context(), e.Key))
	require.Equal(t, http.StatusNotFound, ask(t, v, "filename=a&type=input").Code)
}

// A disk that has lost power may have kept a part of what it said it had synced. A part is not the
// picture, and not the input of a job either.
func TestViewOfADamagedBlob(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	v := NewView(s, i.fetch, ViewOptions{})
	ref := allotted(t, s, i, "x.png", "picture")
	output := must(newCollector(t, s, i).Collect(t.Context(), tenant, ref))
	input := must(s.Resolve(t.Context(), tenant, s.mustUpload(t, input("a"), "input")))
	for _, left := range []string{"", "pi"} {
		for _, key := range []string{output.Key, input.Key} {
			must(s.storage.Write(t.Context(), key, strings.NewReader(left)))
		}
		require.Equal(t, "picture", ask(t, v, "filename=x.png").Body.String())
		require.Equal(t, "ict", ask(t, v, "filename=x.png", "Range", "bytes=1-3").Body.String())
		require.Equal(t, http.StatusNotFound, ask(t, v, "filename=a&type=input").Code)
		_, err := s.Open(t.Context(), input, 0, -1)
		require.ErrorIs(t, err, ErrGone)
	}
}

// Whoever uploads a file again whose bytes a disk has lost puts it right, for all who have it.
func TestUploadMendsADamagedBlob(t *testing.T) {
	s := parallelStore(t)
	first := s.mustUpload(t, input("a"), "whole")
	key := must(s.Resolve(t.Context(), tenant, first)).Key
	for _, left := range []string{"", "who", "\x00\x00\x00\x00\x00"} {
		must(s.storage.Write(t.Context(), key, strings.NewReader(left)))
		s.mustUpload(t, input("a"), "whole")
		require.Equal(t, "whole", s.mustRead(t, first), "%q was left", left)
	}
}

func TestViewActiveContent(t *testing.T) {
	s := parallelStore(t)
	v := NewView(s, newInstance().fetch, ViewOptions{})
	for _, name := range []string{"a.HTML", "b.js", "c.svgz", "d.xml", "e.png", `f".png`} {
		s.mustUpload(t, input(name), "x")
	}
	look := func(name string, headers ...string) string {
		h := ask(t, v, "type=input&filename="+url.QueryEscape(name), headers...).Header()
		return h.Get("Content-Type") + " " + h.Get("Content-Disposition")
	}
	require.Equal(t, `application/octet-stream attachment; filename="a.HTML"`, look("a.HTML"))
	require.Equal(t, `application/octet-stream attachment; filename="b.js"`, look("b.js"))
	require.Equal(t, `application/octet-stream attachment; filename="c.svgz"`, look("c.svgz"))
	require.Equal(t, `image/svg+xml filename="c.svgz"`, look("c.svgz", "Sec-Fetch-Dest", "image"))
	require.Equal(t, `application/octet-stream attachment; filename="d.xml"`, look("d.xml"))
	require.Equal(t, `image/png filename="e.png"`, look("e.png"))
	require.Equal(t, `image/png filename="f\".png"`, look(`f".png`))
}

func decodeBody(t testing.TB, rec *httptest.ResponseRecorder) (image.Image, string) {
	t.Helper()
	require.Equal(t, http.StatusOK, rec.Code, rec.Body.String())
	img, format, err := image.Decode(bytes.NewReader(rec.Body.Bytes()))
	require.NoError(t, err)
	require.Equal(t, "image/"+format, rec.Header().Get("Content-Type"))
	return img, format
}

func TestViewPictures(t *testing.T) {
	s := parallelStore(t)
	v := NewView(s, newInstance().fetch, ViewOptions{})
	clear := color.NRGBA{R: 200, G: 100, B: 50, A: 30}
	s.mustUpload(t, input("clear.png"), string(painted(t, 8, 6, clear, 0)))
	s.mustUpload(t, input("solid.png"), string(painted(t, 8, 6, color.NRGBA{R: 200, G: 100, B: 50, A: 255}, 0)))
	var buf bytes.Buffer
	require.NoError(t, jpeg.Encode(&buf, image.NewGray(image.Rect(0, 0, 8, 6)), nil))
	s.mustUpload(t, input("photo.jpg"), buf.String())
	palette := image.NewPaletted(image.Rect(0, 0, 8, 6), color.Palette{color.Transparent, color.White})
	buf.Reset()
	require.NoError(t, png.Encode(&buf, palette))
	s.mustUpload(t, input("palette.png"), buf.String())
	white, black := image.NewPaletted(image.Rect(0, 0, 8, 6), color.Palette{color.White}), image.NewPaletted(image.Rect(0, 0, 8, 6), color.Palette{color.Black})
	buf.Reset()
	require.NoError(t, gif.EncodeAll(&buf, &gif.GIF{Image: []*image.Paletted{white, black}, Delay: []int{1, 1}}))
	s.mustUpload(t, input("movie.gif"), buf.String())

	at := func(query string) color.NRGBA {
		img, _ := decodeBody(t, ask(t, v, "type=input&"+query))
		require.Equal(t, image.Pt(8, 6), img.Bounds().Size(), query)
		return color.NRGBAModel.Convert(img.At(3, 3)).(color.NRGBA)
	}
	require.Equal(t, color.NRGBA{R: 200, G: 100, B: 50, A: 255}, at("filename=clear.png&channel=rgb"), "the colour under the alpha")
	require.Equal(t, color.NRGBA{A: 30}, at("filename=clear.png&channel=a"))
	require.Equal(t, color.NRGBA{A: 255}, at("filename=photo.jpg&channel=a"))
	require.Equal(t, color.NRGBA{A: 255}, at("filename=palette.png&channel=a"), "a palette is no alpha channel")
	near := at("filename=clear.png&preview=jpeg;100")
	require.InDelta(t, 200, int(near.R), 6)
	require.InDelta(t, 100, int(near.G), 6)

	format := func(query string) string {
		_, f := decodeBody(t, ask(t, v, "type=input&"+query))
		return f
	}
	for _, query := range []string{
		"filename=solid.png&preview=webp;50", "filename=clear.png&preview=webp;50", "filename=clear.png&preview=webp;50&channel=rgb",
		"filename=clear.png&preview=jpeg&channel=rgba", "filename=photo.jpg&preview=", "filename=palette.png&preview=png;0",
		"filename=movie.gif&preview=webp;101",
	} {
		require.Equal(t, "webp", format(query), query)
	}
	require.Equal(t, uint8(30), at("filename=clear.png&preview=webp;50").A, "transparency is kept")
	require.Equal(t, uint8(255), at("filename=clear.png&preview=webp;50&channel=rgb").A)
	require.Equal(t, uint8(0), at("filename=palette.png&preview=webp").A)
	first, _ := decodeBody(t, ask(t, v, "type=input&filename=movie.gif&preview=webp"))
	require.Greater(t, first.(*image.YCbCr).Y[0], uint8(200), "of an animation the first frame")
	for _, quality := range []string{"0", "1", "100", "101", "99999999999999999999"} {
		require.Equal(t, "jpeg", format("filename=solid.png&preview=jpeg;"+quality))
	}
}

func TestViewPictureOfAnOutputThatIsNotCopied(t *testing.T) {
	s, i := parallelStore(t), newInstance()
	allotted(t, s, i, "x.png", string(painted(t, 8, 6, color.NRGBA{A: 9}, 0)))
	allotted(t, s, i, "x.avif", "not for us")
	plain := NewView(s, i.fetch, ViewOptions{})
	_, format := decodeBody(t, ask(t, plain, "filename=x.png&channel=a"))
	require.Equal(t, "png", format)
	require.Equal(t, http.StatusInternalServerError, ask(t, plain, "filename=x.avif&channel=a").Code)

	helped := NewView(s, i.fetch, ViewOptions{Preview: func(_ context.Context, src Source, q url.Values) (*http.Response, error) {
		rec := httptest.NewRecorder()
		rec.Header().Set("Content-Type", "image/fake")
		_, _ = rec.WriteString(src.Instance + " " + q.Encode())
		return rec.Result(), nil
	}})
	rec := ask(t, helped, "filename=x.avif&channel=a")
	require.Equal(t, "gpu1 channel=a&filename=x.avif&subfolder=&type=output", rec.Body.String())
	require.Equal(t, "image/fake", rec.Header().Get("Content-Type"))
}

func TestParseRange(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]byteRange{
		"bytes=0-9": {0, 10}, "bytes=10-": {10, 90}, "bytes=-10": {90, 10}, "bytes=-1000": {0, 100}, "bytes=-0": {0, 100},
		"bytes=99-": {99, 1}, "bytes=99-99999999999999999999": {99, 1}, "bytes=-99999999999999999999": {0, 100},
	} {
		got, ok := parseRange(header, 100)
		require.True(t, ok, header)
		require.Equal(t, want, got, header)
	}
	for _, header := range []string{
		"", "bytes=", "bytes=-", "bytes=100-", "bytes=5-4", "bytes=0-4,10-14", "items=0-9", "bytes=abc", "bytes=1.5-2",
		"Bytes=0-1", "bytes = 0-1", "bytes=99999999999999999999-", "bytes=+1-2",
	} {
		_, ok := parseRange(header, 100)
		require.False(t, ok, header)
	}
	_, ok := parseRange("bytes=0-", 0)
	require.False(t, ok)
}

func TestParseQuery(t *testing.T) {
	t.Parallel()
	require.Equal(t, query{"preview": "webp;50", "a b": "c+d", "e": "1", "f": "", "%zz": "%", "g": "%4 A"},
		parseQuery("preview=webp;50&a+b=c%2bd&e=1&e=2&f&%zz=%&g=%4+%41&"))
	require.Empty(t, parseQuery(""))
}

func TestMimeType(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a.png": "image/png", "a.PNG": "image/png", "a.tar.gz": "application/x-tar", "a.tgz": "application/x-tar",
		"a.png.gz": "image/png", "a": octetStream, "a.unknown": octetStream, ".png": "image/png", "a.latent": octetStream,
	} {
		require.Equal(t, want, mimeType(name), name)
	}
	for typ := range strings.SplitSeq("text/html text/css text/javascript application/xhtml+xml", " ") {
		require.True(t, Active(typ), typ)
	}
}

func TestNamesThatLeadOut(t *testing.T) {
	t.Parallel()
	for _, absolute := range []string{"/hostname", "/etc/hostname", "../x", "a/../../x", `..\x`} {
		_, ok := placeOf(job.ParseFileRef(absolute, job.TypeInput))
		require.False(t, ok, absolute)
	}
}

func TestSplitExt(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]string{
		"a.png": {"a", ".png"}, "a": {"a", ""}, ".a": {".a", ""}, "..a": {"..a", ""}, ".a.b": {".a", ".b"},
		"a.": {"a", "."}, "d.d/a": {"d.d/a", ""}, "": {"", ""}, "a.b.c": {"a.b", ".c"},
	} {
		stem, ext := splitExt(name)
		require.Equal(t, want, [2]string{stem, ext}, name)
	}
}
