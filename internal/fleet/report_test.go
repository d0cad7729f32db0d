package fleet

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var golden = Report{
	Agent: "gpu-box", Boot: 1795226193538, Seq: 42,
	Instances: []InstanceReport{
		{
			Name: "gpu-box-1", URL: "https://10.0.0.5:7947/i/gpu-box-1", Kind: KindComfyUI, Up: true, Queue: 2, Foreign: 1,
			Running: "6b9c1f1e-0b53-4e7b-a7f2-0d8a5c2f4c11", Job: "f2a80a4e-2f0c-4b43-8a0e-7a6f4f2d9b11", Fence: 1 << 60,
			Version: "0.3.64", GPU: "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync", GPUType: "cuda",
			VRAMTotal: 25386352640, VRAMFree: 23900000000, ObjectInfo: "0123456789abcdef0123456789abcdef",
			Boot: 1795226190000, Since: 1795226195000,
		},
		{Name: "gpu-box-2", URL: "http://10.0.0.5:8189", Direct: true, Reason: "connection refused", Load: "the GPU is in use"},
	},
}

// The bytes on the wire: a hub must still read what older agents send.
func TestReportGolden(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "report-1.golden")
	if *update {
		require.NoError(t, os.WriteFile(path, golden.Encode(), 0o600))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(golden.Encode()))
	got, err := DecodeReport(want)
	require.NoError(t, err)
	require.Equal(t, golden, got)
}

func TestDecodeReport(t *testing.T) {
	t.Parallel()
	got, err := DecodeReport([]byte("\x01" + `{"agent": "a", "boot": 1, "seq": 2, "later": {"x": []}, "instances": [{"name": "a", "url": "u", "new": 1}]}`))
	require.NoError(t, err, "a newer agent's fields are left out")
	require.Equal(t, Report{Agent: "a", Boot: 1, Seq: 2, Instances: []InstanceReport{{Name: "a", URL: "u"}}}, got)
	for name, bad := range map[string]string{
		"empty":            "",
		"other encoding":   "\x02{}",
		"no JSON":          "\x01{",
		"no agent":         "\x01{}",
		"wrong types":      "\x01" + `{"agent": 5}`,
		"nameless":         "\x01" + `{"agent": "a", "instances": [{"url": "u"}]}`,
		"no address":       "\x01" + `{"agent": "a", "instances": [{"name": "u"}]}`,
		"path as name":     "\x01" + `{"agent": "a/b"}`,
		"long name":        "\x01" + `{"agent": "` + strings.Repeat("a", 65) + `"}`,
		"path as instance": "\x01" + `{"agent": "a", "instances": [{"name": "../b", "url": "u"}]}`,
		"named twice":      "\x01" + `{"agent": "a", "instances": [{"name": "b", "url": "u"}, {"name": "b", "url": "v"}]}`,
		"long address":     "\x01" + `{"agent": "a", "instances": [{"name": "b", "url": "` + strings.Repeat("u", maxURL+1) + `"}]}`,
		"large":            "\x01" + strings.Repeat(" ", maxReport),
		"too many to hold": "\x01" + `{"agent": "a", "instances": [` + strings.Repeat(`{"name": "u", "url": "u"},`, maxInstances) + `{"name": "u", "url": "u"}]}`,
	} {
		_, err := DecodeReport([]byte(bad))
		require.ErrorIs(t, err, ErrReport, name)
	}
}

// Texts are shown to people, in the log, on the dashboard and in terminals.
func TestTextsOfReportsAreBounded(t *testing.T) {
	t.Parallel()
	long := golden
	long.Instances = []InstanceReport{{
		Name: "a", URL: "u", Reason: strings.Repeat("é", maxText), GPU: "a\x1b[31m\nb", Queue: -5, Foreign: 1 << 40, VRAMFree: -1,
	}}
	got, err := DecodeReport(long.Encode())
	require.NoError(t, err)
	i := got.Instances[0]
	require.Equal(t, strings.Repeat("é", maxText/2), i.Reason)
	require.Equal(t, "a [31m b", i.GPU)
	require.Zero(t, i.Queue)
	require.Equal(t, maxCount, i.Foreign)
	require.Zero(t, i.VRAMFree)
}

func FuzzDecodeReport(f *testing.F) {
	f.Add(golden.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := DecodeReport(data)
		if err != nil {
			return
		}
		again, err := DecodeReport(r.Encode())
		require.NoError(t, err)
		require.Equal(t, r.Encode(), again.Encode())
		require.NoError(t, CheckName(r.Agent))
		require.LessOrEqual(t, len(r.Instances), maxInstances)
		for _, i := range r.Instances {
			require.Regexp(t, instanceName, i.Name)
			require.LessOrEqual(t, len(i.URL), maxURL)
			for _, text := range []string{i.Kind, i.Reason, i.Running, i.Job, i.Load, i.Version, i.GPU, i.GPUType, i.ObjectInfo} {
				require.LessOrEqual(t, len(text), maxText)
			}
		}
		Policy{}.Restrict(r)
		registry := NewRegistry()
		_ = registry.Apply(r) // must not panic, whatever it says
		registry.Instances()
	})
}
