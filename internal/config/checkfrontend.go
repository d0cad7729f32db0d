package config

import (
	"fmt"
	"os"
	"path/filepath"
)

// CheckFrontend says what is wrong with a folder that is to hold the web interface; having none is
// fine.
func CheckFrontend(folder string) error {
	if folder == "" {
		return nil
	}
	if _, err := os.Stat(filepath.Join(folder, "index.html")); err != nil {
		return fmt.Errorf("hub: frontend: want a folder with the web interface's index.html: %w", err)
	}
	return nil
}
