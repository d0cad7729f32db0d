package run

import "github.com/comfyhub/comfyhub/internal/comfyui"

// maxTranscript bounds what is kept of one run's messages, in bytes.
const maxTranscript = 8 << 20

// transcript is what an instance has said about a run, as far as its record of the run would
// contain it. If the record is lost because the process was restarted just after the run, the
// history entry is built from this. Each run has one; it is only of use if no message was missed.
type transcript struct {
	messages []comfyui.EntryMessage
	results  []comfyui.EntryResult
	size     int
}

// note stores a message, with the client's own prompt id, if it belongs in a record.
func (t *transcript) note(kind string, frame []byte) {
	switch kind {
	case comfyui.TypeExecutionStart, comfyui.TypeExecutionCached, comfyui.TypeExecutionSuccess,
		comfyui.TypeExecutionError, comfyui.TypeExecutionInterrupted, comfyui.TypeExecuted:
	default:
		return
	}
	t.size += len(frame)
	if t.size > maxTranscript {
		t.messages, t.results = nil, nil
		return
	}
	m, _ := comfyui.ParseMessage(frame)
	if kind != comfyui.TypeExecuted {
		t.messages = append(t.messages, comfyui.EntryMessage{Type: kind, Data: m.Data})
		return
	}
	if output := m.Raw("output"); len(output) > 0 && output[0] == '{' {
		t.results = append(t.results, comfyui.EntryResult{Node: m.Node, DisplayNode: m.DisplayNode, Output: output})
	}
}
