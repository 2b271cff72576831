package assent.peers;

import com.arjuna.ats.arjuna.common.CoreEnvironmentBean;
import com.arjuna.ats.arjuna.common.ObjectStoreEnvironmentBean;
import com.arjuna.ats.internal.arjuna.objectstore.ShadowNoFileLockStore;
import com.arjuna.ats.internal.arjuna.objectstore.VolatileStore;
import com.arjuna.ats.internal.arjuna.objectstore.hornetq.HornetqJournalEnvironmentBean;
import com.arjuna.ats.internal.arjuna.objectstore.hornetq.HornetqObjectStoreAdaptor;
import com.arjuna.ats.internal.arjuna.objectstore.slot.DiskSlots;
import com.arjuna.ats.internal.arjuna.objectstore.slot.MappedDiskSlots;
import com.arjuna.ats.internal.arjuna.objectstore.slot.SlotStoreAdaptor;
import com.arjuna.ats.internal.arjuna.objectstore.slot.SlotStoreEnvironmentBean;
import com.arjuna.common.internal.util.propertyservice.BeanPopulator;
import jakarta.transaction.Transaction;
import jakarta.transaction.TransactionManager;
import java.nio.file.Path;
import javax.transaction.xa.XAResource;
import org.apache.activemq.artemis.nativo.jlibaio.LibaioContext;

/**
 * Narayana over one of its stores: file, journal, aio, slots, mapped, volatile; `-lazy` forgets without a sync.
 *
 * Decisions are forced to disk in every store but `volatile`. What `-lazy` may lose in a power cut is only that a
 * transaction was finished: recovery then finds nothing of it to commit. That is the promise Assent makes too.
 */
final class Narayana implements Way {
    // Artemis writes when this often a second has come, and no sooner: its own 500 cap one thread at 500 tps.
    private static final int FLUSHES_PER_SECOND = Integer.getInteger("peers.narayana.flushes", 20_000);
    private final TransactionManager manager;

    Narayana(String store, Path folder) throws Exception {
        boolean lazy = store.endsWith("-lazy");
        String kind = lazy ? store.substring(0, store.length() - "-lazy".length()) : store;
        BeanPopulator.getDefaultInstance(CoreEnvironmentBean.class).setNodeIdentifier("peers");
        String type = switch (kind) {
            case "file" -> ShadowNoFileLockStore.class.getName();
            case "volatile" -> VolatileStore.class.getName();
            case "journal", "aio" -> journal(folder, kind.equals("aio"), !lazy);
            case "slots" -> slots(folder, DiskSlots.class.getName(), !lazy);
            case "mapped" -> slots(folder, MappedDiskSlots.class.getName(), !lazy);
            default -> throw new IllegalArgumentException("Narayana has no store '" + kind + "' here");
        };
        for (String name : new String[] {null, "stateStore", "communicationStore"}) {
            ObjectStoreEnvironmentBean bean = name == null
                    ? BeanPopulator.getDefaultInstance(ObjectStoreEnvironmentBean.class)
                    : BeanPopulator.getNamedInstance(ObjectStoreEnvironmentBean.class, name);
            bean.setObjectStoreDir(folder.resolve(name == null ? "store" : name).toString());
            bean.setObjectStoreSync(true);
            bean.setTransactionSync(true);
        }
        BeanPopulator.getDefaultInstance(ObjectStoreEnvironmentBean.class).setObjectStoreType(type);
        manager = com.arjuna.ats.jta.TransactionManager.transactionManager();
    }

    private static String journal(Path folder, boolean aio, boolean syncDeletes) throws Exception {
        HornetqJournalEnvironmentBean bean = BeanPopulator.getDefaultInstance(HornetqJournalEnvironmentBean.class);
        // It would take the other kind, and only log that.
        if (aio && !LibaioContext.isLoaded()) {
            throw new IllegalStateException("libaio or Artemis' library for it is missing on this machine");
        }
        bean.setStoreDir(folder.resolve("journal").toString());
        bean.setAsyncIO(aio);
        bean.setMaxIO(aio ? 500 : 1);
        bean.setBufferFlushesPerSecond(FLUSHES_PER_SECOND);
        bean.setSyncWrites(true);
        bean.setSyncDeletes(syncDeletes);
        return HornetqObjectStoreAdaptor.class.getName();
    }

    private static String slots(Path folder, String backing, boolean syncDeletes) {
        SlotStoreEnvironmentBean bean = BeanPopulator.getDefaultInstance(SlotStoreEnvironmentBean.class);
        bean.setStoreDir(folder.resolve("slots").toString());
        bean.setBackingSlotsClassName(backing);
        bean.setSyncWrites(true);
        bean.setSyncDeletes(syncDeletes);
        return SlotStoreAdaptor.class.getName();
    }

    @Override
    public void transaction(Pair pair) throws Exception {
        manager.begin();
        Transaction transaction = manager.getTransaction();
        enlist(transaction, pair.first());
        enlist(transaction, pair.second());
        pair.work();
        manager.commit();
    }

    private static void enlist(Transaction transaction, XAResource resource) throws Exception {
        if (resource != null && !transaction.enlistResource(resource)) {
            throw new IllegalStateException("Narayana refused a branch");
        }
    }
}
