package comfyui

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestRename(t *testing.T) {
	t.Parallel()
	rename := func(f job.FileRef) job.FileRef {
		f.Filename = strings.Replace(f.Filename, "_00001_", "_00042_", 1)
		return f
	}
	for name, c := range map[string]struct{ in, want string }{
		"images": {
			`{"images": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}, {"filename": "B_00001_.png", "subfolder": "s", "type": "temp"}], "animated": [true]}`,
			`{"images": [{"filename": "A_00042_.png", "subfolder": "", "type": "output"}, {"filename": "B_00042_.png", "subfolder": "s", "type": "temp"}], "animated": [true]}`,
		},
		"video with its full path": {
			`{"gifs": [{"filename": "v_00001_.mp4", "subfolder": "x", "type": "output", "format": "video/h264", "frame_rate": 8.0, "workflow": "v_00001_.png", "fullpath": "/data/output/x/v_00001_.mp4"}]}`,
			`{"gifs": [{"filename": "v_00042_.mp4", "subfolder": "x", "type": "output", "format": "video/h264", "frame_rate": 8.0, "workflow": "v_00001_.png", "fullpath": "/data/output/x/v_00042_.mp4"}]}`,
		},
		"windows path": {
			`{"g": {"filename": "v_00001_.mp4", "subfolder": "", "type": "output", "fullpath": "C:\\out\\v_00001_.mp4"}}`,
			`{"g": {"filename": "v_00042_.mp4", "subfolder": "", "type": "output", "fullpath": "C:\\out\\v_00042_.mp4"}}`,
		},
		"a path elsewhere in the output": {
			`{"result": ["3d/m_00001_.glb", {"fov": NaN}], "3d": [{"filename": "m_00001_.glb", "subfolder": "3d", "type": "output"}]}`,
			`{"result": ["3d/m_00042_.glb", {"fov": NaN}], "3d": [{"filename": "m_00042_.glb", "subfolder": "3d", "type": "output"}]}`,
		},
		"a path of another folder stays": {
			`{"result": ["4d/m_00001_.glb"], "3d": [{"filename": "m_00001_.glb", "subfolder": "3d", "type": "output"}]}`,
			`{"result": ["4d/m_00001_.glb"], "3d": [{"filename": "m_00042_.glb", "subfolder": "3d", "type": "output"}]}`,
		},
		"a text that is the name stays": {
			`{"text": ["A_00001_.png"], "images": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}]}`,
			`{"text": ["A_00001_.png"], "images": [{"filename": "A_00042_.png", "subfolder": "", "type": "output"}]}`,
		},
		"nested deeply, in any order of members": {
			`{"9": {"a": {"b": [[{"type": "output", "x": {"y": 1}, "subfolder": "", "filename": "A_00001_.png"}]]}}}`,
			`{"9": {"a": {"b": [[{"type": "output", "x": {"y": 1}, "subfolder": "", "filename": "A_00042_.png"}]]}}}`,
		},
		"no subfolder is no file": {
			`{"a": {"filename": "A_00001_.png", "type": "output"}}`, `{"a": {"filename": "A_00001_.png", "type": "output"}}`,
		},
		"null":   {`null`, `null`},
		"broken": {`{"a": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}`, `{"a": [{"filename": "A_00001_.png", "subfolder": "", "type": "output"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, string(Rename([]byte(c.in), rename)))
		})
	}
}

func TestRenameAllParts(t *testing.T) {
	t.Parallel()
	in := `{"filename": "\u00e9.png", "subfolder": "a\\b", "type": "temp"}`
	files := Files([]byte(in))
	require.Len(t, files, 1)
	require.Equal(t, job.FileRef{Type: "temp", Subfolder: `a\b`, Filename: "é.png"}, files[0].Ref)
	out := Splice([]byte(in), files, []job.FileRef{{Type: "output", Subfolder: "ü", Filename: "x.png"}})
	require.Equal(t, `{"filename": "x.png", "subfolder": "\u00fc", "type": "output"}`, string(out))
}

// FuzzRename: outputs are custom nodes' own affair; nothing but names may change.
func FuzzRename(f *testing.F) {
	f.Add([]byte(`{"images": [{"filename": "A", "subfolder": "", "type": "output", "fullpath": "/x/A"}], "r": ["b/A", NaN]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		require.Equal(t, string(in), string(Rename(in, func(f job.FileRef) job.FileRef { return f })), "the same names, the same bytes")
		out := Rename(in, func(f job.FileRef) job.FileRef { f.Filename += "~"; return f })
		if _, err := pyjson.Parse(in); err != nil {
			return
		}
		_, err := pyjson.Parse(out)
		require.NoError(t, err, "%q", out)
		before, after := Files(in), Files(out)
		require.Len(t, after, len(before))
		for i := range before {
			require.Equal(t, before[i].Ref.Filename+"~", after[i].Ref.Filename)
			require.Equal(t, before[i].Ref.Subfolder, after[i].Ref.Subfolder)
		}
	})
}
