package comfyv2

import (
	"encoding/base64"
	"encoding/json"

	"github.com/comfyhub/comfyhub/internal/job"
)

// An output's id is its file's name and its job's id, so it needs no index. It opens nothing
// that its tenant could not open with /view.

// outputID is the id of an output.
func outputID(jobID string, ref job.FileRef) string {
	text, _ := json.Marshal([]string{jobID, ref.Type, ref.Subfolder, ref.Filename}) // of strings, which never fails
	return base64.RawURLEncoding.EncodeToString(text)
}

// readOutputID reads what outputID wrote.
func readOutputID(id string) (jobID string, ref job.FileRef, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(id)
	var parts []string
	if err != nil || json.Unmarshal(text, &parts) != nil || len(parts) != 4 || parts[3] == "" {
		return "", job.FileRef{}, false
	}
	return parts[0], job.FileRef{Type: parts[1], Subfolder: parts[2], Filename: parts[3]}, true
}
