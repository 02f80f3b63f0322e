import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.mledger.LedgerOffloader;
import org.apache.pulsar.PulsarStandalone;
import org.apache.pulsar.PulsarStandaloneStarter;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Metadata store, bookie and broker in one process, which does what no client of a broker can.
 *
 * <p>The arguments are those of {@code pulsar standalone}. When the broker is ready, a line is
 * printed; from then on each line of standard input is an order, a JSON list of words, and is
 * answered by one line: {@code {"answer": …}} or {@code {"error": "…"}}. The end of standard input
 * ends the process.
 */
public final class BrokerUnderOrders {
    private static final long SECONDS = 60;

    private final PulsarService service;
    private final List<Transaction> transactions = new ArrayList<>();
    private ReadHandle ledger;
    private PulsarClient client;

    private BrokerUnderOrders(PulsarService service) {
        this.service = service;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        PulsarStandalone standalone = new PulsarStandaloneStarter(arguments);
        standalone.start();
        var broker = PulsarStandalone.class.getDeclaredField("broker");
        broker.setAccessible(true);
        new BrokerUnderOrders((PulsarService) broker.get(standalone)).serve(answers);
        standalone.close();
        Runtime.getRuntime().halt(0);
    }

    private void serve(PrintStream answers) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader orders =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println(json.writeValueAsString(Map.of("answer", "ready")));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            Map<String, Object> answer;
            try {
                answer = Map.of("answer", carryOut(json.readValue(line, String[].class)));
            } catch (Exception error) {
                answer = Map.of("error", error.toString());
            }
            answers.println(json.writeValueAsString(answer));
        }
    }

    private Object carryOut(String[] words) throws Exception {
        switch (words[0]) {
            case "put-metadata":
                return putMetadata(words[1], Base64.getDecoder().decode(words[2]));
            case "free-ledger-ids":
                return freeLedgerIds(Integer.parseInt(words[1]));
            case "open-offloaded":
                return openOffloaded(Long.parseLong(words[1]), UUID.fromString(words[2]), words[3]);
            case "read-entries":
                return readEntries(Long.parseLong(words[1]), Long.parseLong(words[2]));
            case "send-chunked":
                return sendChunked(words[1], words[2], Integer.parseInt(words[3]));
            case "begin-transaction":
                return beginTransaction();
            case "send-in-transaction":
                return sendInTransaction(Integer.parseInt(words[1]), words[2], words[3]);
            case "end-transaction":
                return endTransaction(Integer.parseInt(words[1]), words[2].equals("commit"));
            default:
                throw new IllegalArgumentException("no such order: " + words[0]);
        }
    }

    /** Puts a node into the metadata store, which must not have it. */
    private String putMetadata(String path, byte[] value) throws Exception {
        return wait(service.getLocalMetadataStore().put(path, value, Optional.of(-1L))).getPath();
    }

    /** Makes ledger ids free below BookKeeper's next one; the first and the last of them. */
    private List<Long> freeLedgerIds(int count) throws Exception {
        BookKeeper bookKeeper = service.getBookKeeperClient();
        long first = -1;
        long last = -1;
        for (int made = 0; made < count; made++) {
            LedgerHandle handle =
                    bookKeeper.createLedger(1, 1, BookKeeper.DigestType.CRC32C, new byte[0]);
            handle.close();
            last = handle.getId();
            bookKeeper.deleteLedger(last);
            if (first < 0) {
                first = last;
            } else if (last != first + made) {
                throw new IllegalStateException("another took ledger ids meanwhile");
            }
        }
        return List.of(first, last);
    }

    /** Opens a ledger by the broker's own offloader; its last entry id and its length in bytes. */
    private List<Long> openOffloaded(long ledgerId, UUID uuid, String managedLedger)
            throws Exception {
        LedgerOffloader offloader = service.getDefaultOffloader();
        Map<String, String> metadata = new HashMap<>(offloader.getOffloadDriverMetadata());
        // As ManagedLedgerImpl.asyncOpenLedger adds it; the driver to folders needs it.
        metadata.put("ManagedLedgerName", managedLedger);
        ledger = wait(offloader.readOffloaded(ledgerId, uuid, metadata));
        return List.of(ledger.getLastAddConfirmed(), ledger.getLength());
    }

    /** Reads entries of the ledger opened last, both ends included: pairs of id and SHA-256. */
    private List<List<Object>> readEntries(long firstEntryId, long lastEntryId) throws Exception {
        List<List<Object>> read = new ArrayList<>();
        try (LedgerEntries entries = wait(ledger.readAsync(firstEntryId, lastEntryId))) {
            for (LedgerEntry entry : entries) {
                byte[] digest = MessageDigest.getInstance("SHA-256").digest(entry.getEntryBytes());
                read.add(List.of(entry.getEntryId(), HexFormat.of().formatHex(digest)));
            }
        }
        return read;
    }

    private PulsarClient client() throws Exception {
        if (client == null) {
            String url = service.getBrokerServiceUrl();
            client = PulsarClient.builder().serviceUrl(url).enableTransaction(true).build();
        }
        return client;
    }

    /** Sends a message in chunks of so many bytes; its id, that is those of first and last chunk. */
    private String sendChunked(String topic, String payload, int chunkBytes) throws Exception {
        try (Producer<byte[]> producer =
                client().newProducer()
                        .topic(topic)
                        .enableBatching(false)
                        .enableChunking(true)
                        .chunkMaxMessageSize(chunkBytes)
                        .create()) {
            return producer.send(payload.getBytes(StandardCharsets.UTF_8)).toString();
        }
    }

    /** Begins a transaction; its number among those of this process. */
    private int beginTransaction() throws Exception {
        transactions.add(
                wait(client().newTransaction().withTransactionTimeout(5, TimeUnit.MINUTES).build()));
        return transactions.size() - 1;
    }

    /** Sends a message in a transaction; its id. */
    private String sendInTransaction(int number, String topic, String payload) throws Exception {
        try (Producer<byte[]> producer =
                client().newProducer()
                        .topic(topic)
                        .enableBatching(false)
                        .sendTimeout(0, TimeUnit.SECONDS)
                        .create()) {
            return producer.newMessage(transactions.get(number))
                    .value(payload.getBytes(StandardCharsets.UTF_8))
                    .send()
                    .toString();
        }
    }

    private String endTransaction(int number, boolean isCommitted) throws Exception {
        Transaction transaction = transactions.get(number);
        wait(isCommitted ? transaction.commit() : transaction.abort());
        return transaction.getState().toString();
    }

    private static <T> T wait(CompletableFuture<T> future) throws Exception {
        return future.get(SECONDS, TimeUnit.SECONDS);
    }
}
