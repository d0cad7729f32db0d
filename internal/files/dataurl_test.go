package files_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const pngStart = "\x89PNG\r\n\x1a\n"

func TestReadDataURL(t *testing.T) {
	t.Parallel()
	std := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct{ url, ext, problem string }{
		"png":                   {url: "data:image/png;base64," + std([]byte(pngStart+"a")), ext: ".png"},
		"jpeg that claims png":  {url: "data:image/png;base64," + std([]byte("\xff\xd8\xff\xe0")), ext: ".jpg"},
		"no type":               {url: "data:;base64," + std([]byte("GIF89a")), ext: ".gif"},
		"parameters":            {url: "data:image/png;name=a.html;BASE64," + std([]byte(pngStart)), ext: ".png"},
		"path in a parameter":   {url: "data:image/png;name=../../x;base64," + std([]byte(pngStart)), ext: ".png"},
		"no padding":            {url: "data:image/png;base64," + base64.RawStdEncoding.EncodeToString([]byte(pngStart+"ab")), ext: ".png"},
		"line breaks":           {url: "data:image/png;base64," + strings.Join(strings.SplitAfter(std([]byte(pngStart+"abcdef")), "A"), "\r\n") + "\n", ext: ".png"},
		"flac":                  {url: "data:audio/flac;base64," + std([]byte("fLaC\x00")), ext: ".flac"},
		"tiff":                  {url: "data:;base64," + std([]byte("II*\x00....")), ext: ".tiff"},
		"avif":                  {url: "data:;base64," + std([]byte("\x00\x00\x00\x20ftypavif....")), ext: ".avif"},
		"wav":                   {url: "data:;base64," + std([]byte("RIFF\x00\x00\x00\x00WAVEfmt ")), ext: ".wav"},
		"as large as allowed":   {url: "data:;base64," + std([]byte(pngStart+strings.Repeat("x", 92))), ext: ".png"},
		"a byte too large":      {url: "data:;base64," + std([]byte(pngStart+strings.Repeat("x", 93))), problem: "more than 100 bytes"},
		"page that claims png":  {url: "data:image/png;base64," + std([]byte("<html><script>")), problem: "no picture"},
		"vector picture":        {url: "data:image/svg+xml;base64," + std([]byte("<?xml version='1.0'?><svg/>")), problem: "no picture"},
		"text":                  {url: "data:text/plain;base64," + std([]byte("hello")), problem: "no picture"},
		"not base64":            {url: "data:image/png;base64,%89PNG", problem: "not valid base64"},
		"half a byte":           {url: "data:image/png;base64," + std([]byte(pngStart+"a")) + "A", problem: "not valid base64"},
		"damaged far on":        {url: "data:;base64," + std([]byte(pngStart+strings.Repeat("x", 85))) + "*", problem: "not valid base64"},
		"padding in the middle": {url: "data:;base64,iVBORw0=KGgo", problem: "not valid base64"},
		"percent-encoded":       {url: "data:image/png,%89PNG", problem: "must begin"},
		"no comma":              {url: "data:image/png;base64", problem: "must begin"},
		"endless header":        {url: "data:" + strings.Repeat("a", 1000) + ";base64," + std([]byte(pngStart)), problem: "must begin"},
		"empty":                 {url: "data:image/png;base64,", problem: "empty"},
		"only padding":          {url: "data:image/png;base64,====", problem: "empty"},
		"another scheme":        {url: "http://127.0.0.1/;base64,AAAA", problem: "must begin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := files.ReadDataURL(c.url, 100)
			if c.problem != "" {
				var wrong *files.DataURLError
				require.ErrorAs(t, err, &wrong)
				require.Contains(t, err.Error(), c.problem)
				return
			}
			require.NoError(t, err)
			require.Regexp(t, `^[0-9a-f]{32}\`+c.ext+`$`, e.Ref.Filename)
			require.Equal(t, "embedded", e.Ref.Subfolder)
			require.Equal(t, "input", e.Ref.Type)
		})
	}
}

// What a data: URL claims to be plays no part in the name, and no error quotes its text.
func FuzzReadDataURL(f *testing.F) {
	f.Add("data:image/png;base64,iVBORw0KGgo=")
	f.Add("data:;base64,R0lGODlh\r\n")
	f.Add("data:image/png,%89PNG")
	f.Add("data:;base64,fLaC=====")
	f.Add("data:../../x;base64,AAAA")
	f.Fuzz(func(t *testing.T, url string) {
		e, err := files.ReadDataURL(url, 1000)
		if err != nil {
			var wrong *files.DataURLError
			require.ErrorAs(t, err, &wrong)
			return
		}
		require.Regexp(t, `^[0-9a-f]{32}\.[a-z0-9]{3,4}$`, e.Ref.Filename)
		content := must.Get(io.ReadAll(e.Content()))(t)
		require.LessOrEqual(t, len(content), 1000)
		require.Equal(t, e.Ref, must.Get(files.ReadDataURL("data:x/y;base64,"+base64.StdEncoding.EncodeToString(content), 1000))(t).Ref)
		require.True(t, bytes.Equal(content, must.Get(io.ReadAll(e.Content()))(t)))
	})
}
