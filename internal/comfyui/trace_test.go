package comfyui

import (
	"bufio"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// recorded returns the lines of a file in testdata: what ComfyUI 0.3.64 and
// 0.33.0 sent, one body or frame a line.
func recorded(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	lines := bufio.NewScanner(unzipped)
	lines.Buffer(nil, 1<<20)
	var all []string
	for lines.Scan() {
		all = append(all, lines.Text())
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, all)
	return all
}

// The scanner reads real messages as a full parser does, and rewriting them
// changes exactly the ids.
func TestRecordedMessages(t *testing.T) {
	t.Parallel()
	types := map[string]int{}
	for _, line := range recorded(t, "frames.txt.gz") {
		v, err := pyjson.Parse([]byte(line))
		require.NoError(t, err)
		root := v.(*pyjson.Object)
		data := root.Object("data")
		m, ok := ParseMessage([]byte(line))
		require.True(t, ok, line)
		require.Equal(t, root.String("type"), m.Type)
		require.Equal(t, data.String("prompt_id"), m.PromptID)
		require.Equal(t, data.String("node"), m.Node)
		require.Equal(t, data.String("display_node"), m.DisplayNode)
		for _, key := range data.Keys() {
			require.Equal(t, string(data.Raw(key)), string(m.Raw(key)))
		}
		if m.Type == TypeStatus {
			n, ok := m.QueueRemaining()
			require.True(t, ok)
			require.GreaterOrEqual(t, n, 0)
		}
		types[m.Type]++
		if m.PromptID == "" {
			continue
		}
		out := string(RewriteID([]byte(line), m.PromptID, "an-id-of-the-client"))
		require.NotContains(t, out, `"prompt_id": "`+m.PromptID+`"`)
		require.Equal(t, strings.ReplaceAll(line, `"`+m.PromptID+`"`, `"an-id-of-the-client"`), out)
	}
	for _, want := range []string{
		TypeStatus, TypeExecutionStart, TypeExecutionCached, TypeExecuting, TypeProgress, TypeProgressState, TypeExecuted,
		TypeExecutionSuccess, TypeExecutionError, TypeExecutionInterrupted, TypeFeatureFlags,
	} {
		require.NotZero(t, types[want], want)
	}
}

// The builders write what a server writes, byte for byte.
func TestBuildersAgreeWithRecordedMessages(t *testing.T) {
	t.Parallel()
	built := map[string]int{}
	for _, line := range recorded(t, "frames.txt.gz") {
		m, ok := ParseMessage([]byte(line))
		require.True(t, ok)
		at := timeOf(m)
		var got []byte
		switch m.Type {
		case TypeExecutionStart:
			got = ExecutionStart(m.PromptID, at)
		case TypeExecutionSuccess:
			got = ExecutionSuccess(m.PromptID, at)
		case TypeExecutionInterrupted:
			got = ExecutionInterrupted(m.PromptID, m.String("node_id"), m.String("node_type"), m.Strings("executed"), at)
		case TypeExecutionError:
			got = ExecutionError(m.PromptID, Failure{
				NodeID: m.String("node_id"), NodeType: m.String("node_type"), Executed: m.Strings("executed"),
				Message: m.String("exception_message"), Type: m.String("exception_type"), Traceback: m.Strings("traceback"),
			}, at)
			if string(m.Raw("current_inputs")) != "{}" || string(m.Raw("current_outputs")) != "[]" || m.Raw("timestamp") == nil {
				requireSameKeys(t, line, got)
				built[m.Type]++
				continue
			}
		default:
			continue
		}
		require.Equal(t, line, string(got))
		built[m.Type]++
	}
	require.Len(t, built, 4)
}

func requireSameKeys(t *testing.T, line string, got []byte) {
	t.Helper()
	want, err := pyjson.Parse([]byte(line))
	require.NoError(t, err)
	have, err := pyjson.Parse(got)
	require.NoError(t, err)
	for _, key := range want.(*pyjson.Object).Object("data").Keys() {
		require.True(t, have.(*pyjson.Object).Object("data").Has(key), key)
	}
}

func TestRecordedHistory(t *testing.T) {
	t.Parallel()
	ends := map[string]int{}
	entries := 0
	for _, line := range recorded(t, "history.txt.gz") {
		require.True(t, pyjson.Members([]byte(line), func(id string, raw []byte) {
			entry, ok := ParseEntry(raw)
			require.True(t, ok)
			entries++
			ends[entry.End]++
			require.Equal(t, entry.Completed, entry.Status == "success")
			out := RewriteEntry(raw, EntryEdit{From: id, To: "an-id-of-the-client"})
			quotedID := string(quoted(id))
			if strings.Count(string(raw), quotedID) == 1+strings.Count(string(raw), `"prompt_id": `+quotedID) {
				require.Equal(t, strings.ReplaceAll(string(raw), quotedID, `"an-id-of-the-client"`), string(out))
			}
			require.Equal(t, string(raw), string(Rename(raw, func(f job.FileRef) job.FileRef { return f })))
		}))
	}
	require.Greater(t, entries, 50)
	for _, want := range []string{TypeExecutionSuccess, TypeExecutionError, TypeExecutionInterrupted} {
		require.NotZero(t, ends[want], want)
	}
}

func TestRecordedQueues(t *testing.T) {
	t.Parallel()
	items := 0
	for _, line := range recorded(t, "queue.txt.gz") {
		q, err := ParseQueue([]byte(line))
		require.NoError(t, err, line)
		require.LessOrEqual(t, len(q.Running), 1)
		require.Equal(t, len(q.Running)+len(q.Pending), q.Foreign())
		for _, item := range append(q.Running, q.Pending...) {
			items++
			require.NotEmpty(t, item.Number)
			require.True(t, strings.HasPrefix(string(item.Prompt), "{"))
			require.NotEmpty(t, item.Outputs)
		}
	}
	require.Greater(t, items, 10)
}
