package shell

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/comfyhub/comfyhub/internal/durable"
)

// keyBytes is the length of a gossip key.
const keyBytes = 32

func keygenCommand() *cobra.Command {
	return &cobra.Command{
		Use: "keygen [FILE]", Short: "Make a gossip key, the secret of a fleet",
		Long: `Prints a new gossip key: 32 random bytes in base64. With a file, writes it there
instead, readable by you alone; a file that is there stays as it is.

Hubs and agents of a fleet need the same key: in COMFYHUB_GOSSIP_KEY, or in a file
named by COMFYHUB_GOSSIP_KEY_FILE at the hub and --key-file at the agent.`,
	}
}

func runKeygen(cmd *cobra.Command, args []string) error {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails
	text := base64.StdEncoding.EncodeToString(key) + "\n"
	if len(args) == 0 {
		fmt.Fprint(cmd.OutOrStdout(), text)
		return nil
	}
	file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return usagef("%s exists: a fleet that uses its key would lose it; delete the file first", args[0])
	}
	if err != nil {
		return usagef("%w", err)
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close(), durable.SyncFolder(filepath.Dir(args[0]))); err != nil {
		return errors.Join(err, os.Remove(args[0])) // half a key is none
	}
	return nil
}
